"""The first screen: five questions, answered in sentences made from the numbers."""

from collections.abc import Sequence
from typing import NamedTuple

from recast_eval.reporting.battles import Battle
from recast_eval.reporting.blocks import number_text, p_text, percent, percents
from recast_eval.reporting.distrust import Doubt, doubts
from recast_eval.reporting.facts import EvaluationFacts, Facts
from recast_eval.reporting.scores import Difference
from recast_eval.reporting.sweeps import matches, run_results, swept
from recast_eval.stats import detectable_rate

SAYS = {
    "better": "clearly higher",
    "worse": "clearly lower",
    "open": "cannot be told apart",
}


class Answer(NamedTuple):
    """A question of the reader and what the numbers say."""

    key: str
    question: str
    lead: str
    """One sentence."""
    points: tuple[str, ...] = ()


class Summary(NamedTuple):
    """The first screen of a report."""

    compared: Answer
    answers: tuple[Answer, ...]
    distrust: tuple[Doubt, ...]


def summarise(facts: Facts) -> Summary:
    """Answer the five questions; what cannot be answered is said to be so."""
    main = facts.evaluations[0] if facts.evaluations else None
    return Summary(_compared(facts), (*_answers(main), *_over_sweep(facts)), doubts(facts))


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _compared(facts: Facts) -> Answer:
    points = []
    for one in facts.evaluations:
        samples = {s.sample for s in one.evaluation.scores} or {
            i.sample for images in one.evaluation.images.values() for i in images
        }
        roles = list(one.scores.roles.values())
        text = (
            f"{_plural(len(one.models), 'model')} ({', '.join(one.models[:6])}"
            f"{', …' if len(one.models) > 6 else ''}) on {_plural(len(one.prompts), 'prompt')}"
            f" \u00d7 {_plural(max(1, len(samples)), 'image')}; "
            f"{_plural(roles.count('train'), 'training reward')}, "
            f"{_plural(roles.count('heldout'), 'held-out judge')}"
        )
        if one.battles.judges:
            pairs = len({v.key() for v in one.evaluation.verdicts})
            text += f"; {_plural(pairs, 'pair')} judged by {', '.join(one.battles.judges[:3])}"
        points.append(text + ".")
    if facts.runs:
        kinds = sorted({run.method for run in facts.runs})
        points.append(
            f"{_plural(len(facts.runs), 'training run')} (method + how rewards are joined + "
            f"credit): {', '.join(kinds[:5])}{', …' if len(kinds) > 5 else ''}."
        )
    lead = "Nothing was evaluated; this report shows training only."
    if facts.evaluations and facts.evaluations[0].focus:
        lead = "{} against {}".format(*facts.evaluations[0].focus)
    elif facts.evaluations and facts.evaluations[0].models:
        lead = f"{facts.evaluations[0].models[0]} alone: there is nothing to compare it with."
    return Answer("compared", "What was compared?", lead, tuple(points))


def _answers(facts: EvaluationFacts | None) -> tuple[Answer, ...]:
    if facts is None or facts.focus is None:
        nothing = (
            "Not known: two models have to be evaluated on the same prompts; training rewards "
            "alone cannot say it."
        )
        return (Answer("better", "Which model is better?", nothing),)
    return (_better(facts), _how_much(facts), _how_sure(facts), _on_what(facts))


def _over_sweep(facts: Facts) -> tuple[Answer, ...]:
    runs = swept(facts.runs)
    found = matches(runs, run_results(facts, runs)) if runs else ()
    if not found:
        return ()
    points = []
    for method in dict.fromkeys(match.method for match in found):
        mine = [match for match in found if match.method == method]
        looks = [match.verdict for match in mine]
        up, down = looks.count("better"), looks.count("worse")
        points.append(
            f"{method} against {mine[0].reference}, over runs of the same budget and seed: of "
            f"{_plural(len(mine), 'score')} {up} clearly higher, {down} clearly lower, "
            f"{len(mine) - up - down} cannot be told apart."
        )
    points.append(
        f"Exact sign test over runs, adjusted for {_plural(len(found), 'comparison')}; training "
        "rewards count here where nothing else was measured."
    )
    return (Answer("sweep", "Which method, over the sweep?", points[0], tuple(points[1:])),)


def _count(found: Sequence[Difference]) -> tuple[int, int, int]:
    looks = [d.verdict for d in found]
    return looks.count("better"), looks.count("worse"), looks.count("open")


def conclusion(facts: EvaluationFacts) -> tuple[str, str]:
    """(``better`` | ``worse`` | ``mixed`` | ``open``, the sentence) about the focus pair.

    The held-out evidence decides: the judge's main axis and the held-out scorers, each after
    Holm's adjustment. Training rewards have no vote.
    """
    assert facts.focus is not None  # noqa: S101 - callers check
    first, second = facts.focus
    battle = facts.battles.main(facts.focus)
    up, down, _ = _count(facts.scores.of_pair(facts.focus, "heldout"))
    votes = ["better"] * up + ["worse"] * down
    if battle is not None and battle.verdict != "open":
        votes.append(battle.verdict)
    if not votes:
        if battle is None and not facts.scores.of_pair(facts.focus, "heldout"):
            return "open", f"Not known: nothing held out compared {first} with {second}."
        return "open", f"{first} and {second} cannot be told apart by what was held out."
    if set(votes) == {"better"}:
        return "better", f"{first} is better than {second}."
    if set(votes) == {"worse"}:
        return "worse", f"{second} is better than {first}."
    return "mixed", f"It depends: the held-out evidence on {first} against {second} disagrees."


def _better(facts: EvaluationFacts) -> Answer:
    assert facts.focus is not None  # noqa: S101
    _, lead = conclusion(facts)
    points = []
    for role, what in (("heldout", "held-out judges"), ("train", "training rewards")):
        found = facts.scores.of_pair(facts.focus, role)
        if found:
            up, down, level = _count(found)
            points.append(
                f"Of {len(found)} {what}: {up} clearly higher, {down} clearly lower, "
                f"{level} cannot be told apart."
            )
    points += _against_reference(facts)
    return Answer("better", "Which model is better?", lead, tuple(points))


def _against_reference(facts: EvaluationFacts) -> list[str]:
    """How both models of the focus stand against the reference, if it is a third."""
    assert facts.focus is not None  # noqa: S101
    points = []
    for model in facts.focus:
        pair = model, facts.reference
        if pair not in facts.pairs or pair == facts.focus:
            continue
        said = [
            f"{SAYS[d.verdict]} on all training rewards together"
            for d in facts.aggregate.of_pair(pair)
        ]
        battle = facts.battles.main(pair)
        if battle is not None and battle.rate is not None:
            rate = battle.rate
            beyond = "beyond chance" if battle.verdict != "open" else "not beyond chance"
            said.append(
                f"wins {percent(rate.estimate)} of judged pairs "
                f"[{percents(rate.low, rate.high)}], {beyond}"
            )
        if said:
            points.append(f"{model} against {facts.reference}: {'; '.join(said)}.")
    return points


def _how_much(facts: EvaluationFacts) -> Answer:
    assert facts.focus is not None  # noqa: S101
    battle = facts.battles.main(facts.focus)
    points = []
    lead = "No win rate: nothing was judged pairwise."
    if battle is not None and battle.rate is not None:
        rate = battle.rate
        lead = (
            f"{facts.focus[0]} wins {percent(rate.estimate)} of pairs against {facts.focus[1]} "
            f"[{percents(rate.low, rate.high)}]; ties and flips count half."
        )
        if battle.decisive is not None:
            points.append(
                f"Of decided pairs alone: {percent(battle.decisive.estimate)}; "
                f"{percent(rate.tie_share)} were ties or flips."
            )
    elif battle is not None:
        lead = f"No win rate: 0 of {battle.n_total} pairs were scored."
    held = facts.scores.of_pair(facts.focus, "heldout")
    known = [d for d in held if d.effect == d.effect]
    if known:
        mean = sum(d.effect for d in known) / len(known)
        up, down, _ = _count(known)
        alone = "" if up or down else "; no single one is beyond chance"
        points.append(
            f"Averaged over {_plural(len(known), 'held-out judge')}, {facts.focus[0]} is "
            f"{number_text(abs(mean), 2)} standard deviations {'lower' if mean < 0 else 'higher'} "
            f"than {facts.focus[1]}{alone}."
        )
    return Answer("much", "By how much?", lead, tuple(points))


def _how_sure(facts: EvaluationFacts) -> Answer:
    assert facts.focus is not None  # noqa: S101
    battle = facts.battles.main(facts.focus)
    points = []
    lead = f"The unit is the prompt: {_plural(len(facts.prompts), 'prompt')}."
    if battle is not None and battle.rate is not None:
        lead = (
            f"{_certainty(battle.p_adjusted)}: p {_equals(battle.p_adjusted)} for the judged pairs "
            f"(sign-flip test over {_plural(battle.rate.n_prompts, 'prompt')}, adjusted for "
            f"{_plural(len(facts.battles.whole), 'comparison')})."
        )
        level = detectable_rate(battle.rate.n_prompts, tie_share=min(0.99, battle.rate.tie_share))
        points.append(
            f"A run of this size finds a true win rate of {percent(level, 0)} of decided pairs "
            "four times in five; a smaller one it may miss."
            if level < 0.99
            else "With so few decided pairs even a model that always wins could be missed."
        )
        if battle.states["unscored"]:
            points.append(
                f"{_plural(battle.states['unscored'], 'pair')} could not be scored; had all of "
                f"them gone one way: {percents(battle.worst.low, battle.worst.high)}."
            )
    held = facts.scores.of_pair(facts.focus, "heldout")
    if held:
        best = min(held, key=lambda d: d.p_adjusted)
        points.append(
            f"Strongest held-out difference: {best.scorer}, p {_equals(best.p_adjusted)}, adjusted "
            f"for {_plural(len(facts.scores.differences), 'comparison')}."
        )
    points.append("Intervals are 95 %, clustered by prompt.")
    return Answer("sure", "How sure is that?", lead, tuple(points))


def _certainty(p: float) -> str:
    if p < 0.001:
        return "Very sure that they differ"
    return "Sure that they differ" if p < 0.05 else "Not sure that they differ"


def _equals(p: float) -> str:
    text = p_text(p)
    return text if text.startswith("<") else f"= {text}"


def _on_what(facts: EvaluationFacts) -> Answer:
    assert facts.focus is not None  # noqa: S101
    first, second = facts.focus
    points = []
    found = facts.scores.of_pair(facts.focus)
    up = [d for d in found if d.verdict == "better"]
    down = [d for d in found if d.verdict == "worse"]
    lead = f"{first} is clearly higher on {_listed(up)}; clearly lower on {_listed(down)}."
    if not up and not down:
        lead = f"No scorer tells {first} and {second} apart beyond chance."
    if not found:
        lead = "No scores of both models."
    axes = [b for b in facts.battles.whole if b.pair == facts.focus and b.rate is not None]
    if axes:
        points.append(
            f"Win rate of {first} as judged: "
            + ", ".join(f"{b.axis} {_rated(b)}" for b in axes[:4] if b.rate)
            + "."
        )
    split = [b for b in facts.battles.by_category if b.rate is not None]
    if len(split) > 1:
        points.append(_categories(split))
    return Answer("what", "On what?", lead, tuple(points))


def _rated(battle: Battle) -> str:
    assert battle.rate is not None  # noqa: S101
    mark = "" if battle.verdict != "open" else " (not beyond chance)"
    return f"{percent(battle.rate.estimate)}{mark}"


def _categories(split: Sequence[Battle]) -> str:
    clear = [b for b in split if b.verdict != "open" and b.rate is not None]
    if not clear:
        return f"None of {len(split)} categories stands out beyond chance."
    named = [f"{b.category} ({percent(b.rate.estimate)})" for b in clear if b.rate]
    return f"Beyond chance in {len(clear)} of {len(split)} categories: {', '.join(named[:5])}."


def _listed(found: Sequence[Difference]) -> str:
    if not found:
        return "nothing"
    named = [
        f"{d.scorer}{' (held out)' if d.role == 'heldout' else ''}"
        for d in sorted(found, key=lambda d: -abs(d.effect))
    ]
    more = f" and {len(named) - 4} more" if len(named) > 4 else ""
    return ", ".join(named[:4]) + more
