"""What a reader should not trust, found in the numbers and said in sentences."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from recast_eval.judging.audit_records import AuditRecord
from recast_eval.reporting.blocks import number_text, percent
from recast_eval.reporting.facts import EvaluationFacts, Facts, run_of
from recast_eval.reporting.inputs import Evaluation, Run
from recast_eval.reporting.scores import Difference
from recast_eval.stats.winrate import FEW_PROMPTS

MANY_FLIPS = 0.2
LOW_RELIABILITY = 0.3


class Doubt(NamedTuple):
    """A reason for care; ``grave`` ones can turn a conclusion around."""

    text: str
    grave: bool = False


class Hacking(NamedTuple):
    """Training rewards rose while held-out judges fell."""

    model: str
    reference: str
    risen: tuple[Difference, ...]
    fallen: tuple[Difference, ...]


def doubts(facts: Facts) -> tuple[Doubt, ...]:
    """Everything worth a warning, the grave first."""
    found = [doubt for one in facts.evaluations for doubt in _of_evaluation(one, facts)]
    if not facts.evaluations:
        found.append(
            Doubt(
                "Nothing held out was measured: rewards that were trained on rise whether or not "
                "pictures become better (recast-eval score, judge)."
            )
        )
    found += _of_runs(facts.runs)
    found += [Doubt(note) for note in facts.inputs.notes]
    unique = list(dict.fromkeys(found))
    return tuple(sorted(unique, key=lambda doubt: not doubt.grave))


def hacking(facts: EvaluationFacts) -> tuple[Hacking, ...]:
    """Models whose training rewards rose and held-out scores fell, both beyond chance."""
    found = []
    for pair in facts.pairs:
        risen = [d for d in facts.scores.of_pair(pair, "train") if d.verdict == "better"]
        fallen = [d for d in facts.scores.of_pair(pair, "heldout") if d.verdict == "worse"]
        if risen and fallen:
            found.append(Hacking(*pair, tuple(risen), tuple(fallen)))
    return tuple(found)


def _of_evaluation(facts: EvaluationFacts, all_facts: Facts) -> Iterator[Doubt]:
    for one in hacking(facts):
        fallen = ", ".join(f"{d.scorer} ({number_text(d.effect, 2)} SD)" for d in one.fallen)
        yield Doubt(
            f"Reward hacking: {one.model} rose on training rewards against {one.reference} "
            f"({', '.join(d.scorer for d in one.risen)}) and fell on held-out {fallen}.",
            grave=True,
        )
    yield from _leaks(facts, all_facts.runs)
    yield from _sacrificed(facts)
    yield from _coverage(facts)
    yield from _sizes(facts.evaluation)
    yield from _judging(facts)
    if facts.prompts and len(facts.prompts) < FEW_PROMPTS:
        yield Doubt(
            f"Only {len(facts.prompts)} prompts: intervals are wide and rest on Student's t."
        )
    yield from _unfair(facts, all_facts.runs)


def _leaks(facts: EvaluationFacts, runs: Sequence[Run]) -> Iterator[Doubt]:
    trained = {reward for run in runs for reward in run.budgets}
    leaked = [
        s for s in facts.scores.scorers if facts.scores.roles[s] == "heldout" and s in trained
    ]
    if leaked:
        yield Doubt(
            f"{', '.join(leaked)} is called held out and was a training reward of a run here.",
            grave=True,
        )
    if facts.scores.scorers and "heldout" not in facts.scores.roles.values():
        yield Doubt(
            "No held-out judge scored these images: a training reward cannot testify for itself.",
            grave=True,
        )


def _sacrificed(facts: EvaluationFacts) -> Iterator[Doubt]:
    for pair in facts.pairs:
        mine = facts.scores.of_pair(pair, "train")
        lost = [d for d in mine if d.verdict == "worse"]
        if lost and any(d.verdict == "better" for d in mine):
            yield Doubt(
                f"{pair[0]} pays for its gains over {pair[1]} with the training reward"
                f"{'s' if len(lost) > 1 else ''} {', '.join(d.scorer for d in lost)}."
            )


def _coverage(facts: EvaluationFacts) -> Iterator[Doubt]:
    for scorer in facts.scores.scorers:
        means = [(m, facts.scores.means[scorer, m]) for m in facts.models]
        failed = sum(mean.n_total - mean.n_scored for _, mean in means)
        total = sum(mean.n_total for _, mean in means)
        if failed:
            why = facts.scores.reasons(scorer)
            yield Doubt(f"{scorer} could not score {failed} of {total} images ({why}).")
        missing = [m for m, mean in means if mean.n_total == 0]
        if missing and total:
            yield Doubt(f"{scorer} has no scores for {', '.join(missing)}.")
        truncated = sum(mean.truncated for _, mean in means)
        if truncated:
            yield Doubt(f"{scorer} read only the beginning of {truncated} of {total} prompts.")
    counts = facts.scores.images()
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{model} {count}" for model, count in counts.items())
        yield Doubt(f"Not all models have as many scored images ({said}): compared where both do.")
    for d in facts.scores.differences:
        if d.coverage_p < 0.05:
            yield Doubt(
                f"{d.scorer} fails on {d.pair[0]} and {d.pair[1]} unequally often: what is "
                "missing may hide the difference.",
                grave=True,
            )


def _sizes(evaluation: Evaluation) -> Iterator[Doubt]:
    models = evaluation.manifest.facts.get("models") if evaluation.manifest else None
    sizes: dict[str, list[str]] = {}
    for name, about in models.items() if isinstance(models, dict) else ():
        if isinstance(about, dict) and isinstance(about.get("sizes"), dict):
            sizes[str(name)] = sorted(map(str, about["sizes"]))
    if len({tuple(found) for found in sizes.values()}) > 1:
        said = "; ".join(f"{name} {', '.join(found[:3])}" for name, found in sizes.items())
        yield Doubt(
            f"Pictures are not of one size ({said}): what scorers and judges like may be the "
            "resolution.",
            grave=True,
        )


def _judging(facts: EvaluationFacts) -> Iterator[Doubt]:
    if not facts.battles.whole:
        if facts.focus is not None:
            yield Doubt("Nothing was judged pairwise: no win rates.")
        return
    for judge in facts.battles.judges:
        mine = [b for b in facts.battles.whole if b.judge == judge]
        total = sum(b.n_total for b in mine)
        unscored = sum(b.states["unscored"] for b in mine)
        scored = total - unscored
        if unscored:
            yield Doubt(
                f"{judge} gave no verdict on {percent(unscored / total)} of its questions; "
                "the worst case stands beside each win rate.",
                grave=unscored > 0.2 * total,
            )
        flips = sum(b.states["flip"] for b in mine)
        if scored and flips > MANY_FLIPS * scored:
            yield Doubt(
                f"{judge} changed {percent(flips / scored)} of its verdicts when the pictures "
                "were swapped: it listens to position.",
                grave=flips > 0.5 * scored,
            )
    yield from _audited(facts.evaluation.audit)


def _audited(audit: AuditRecord | None) -> Iterator[Doubt]:
    if audit is None:
        yield Doubt("The judge was not audited (recast-eval audit).")
        return
    for judge in audit.judges:
        if judge.level != "trust it":
            yield Doubt(
                f"Audit of {judge.judge} on {judge.axis}: {judge.verdict}.",
                grave=judge.level == "uninformative",
            )


def _unfair(facts: EvaluationFacts, runs: Sequence[Run]) -> Iterator[Doubt]:
    if facts.focus is None:
        return
    first, second = (run_of(model, runs) for model in facts.focus)
    if first is None or second is None:
        return
    other = sorted(recipe_differences(first.recipe, second.recipe))
    if other:
        yield Doubt(
            f"{facts.focus[0]} and {facts.focus[1]} differ in more than the credit: "
            f"{', '.join(other[:8])}."
        )
    ends = [run.metrics[-1].step if run.metrics else 0 for run in (first, second)]
    if ends[0] != ends[1]:
        yield Doubt(
            f"{facts.focus[0]} was trained to step {ends[0]}, {facts.focus[1]} to {ends[1]}.",
            grave=True,
        )
    if first.budgets != second.budgets:
        yield Doubt(f"{facts.focus[0]} and {facts.focus[1]} were given different budgets.")


def recipe_differences(first: dict[str, Any], second: dict[str, Any], path: str = "") -> set[str]:
    """Dotted keys on which two recipes differ, the credit, names and comments apart."""
    found = set[str]()
    for key in {**first, **second}:
        place = f"{path}.{key}" if path else str(key)
        if place.split(".")[0] in ("credit", "name", "about", "description"):
            continue
        a, b = first.get(key), second.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found |= recipe_differences(a, b, place)
        elif a != b:
            found.add(place)
    return found


def _reliability(run: Run) -> list[tuple[str, float]]:
    last = run.credits[-1]
    return list(zip(last.rewards, last.reliability or [], strict=False))


def _of_runs(runs: Sequence[Run]) -> Iterator[Doubt]:
    groups: dict[tuple[str, str], set[int | None]] = {}
    for run in runs:
        groups.setdefault((run.method, str(run.budgets)), set()).add(run.seed)
    single = sorted({method for (method, _), seeds in groups.items() if len(seeds) == 1})
    if single:
        yield Doubt(
            f"One training seed only for {', '.join(single[:4])}: a difference between methods "
            "includes the luck of the seed, which no interval here covers."
        )
    for run in runs:
        if not run.credits or run.credits[-1].reliability is None:
            continue
        weak = [reward for reward, value in _reliability(run) if value < LOW_RELIABILITY]
        if weak and run.credit_kind != "static":
            yield Doubt(
                f"The gains of {', '.join(weak)} in {run.name} are mostly noise "
                f"(reliability below {LOW_RELIABILITY:g}): its credit is close to a guess."
            )
