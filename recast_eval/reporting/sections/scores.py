"""Scores: every model on every scorer, and differences on the same prompts."""

from recast_eval.plots.intervals import Row, intervals_info
from recast_eval.plots.scatter import Point, points_info
from recast_eval.reporting.blocks import (
    Block,
    Cell,
    Look,
    Maker,
    NoteBlock,
    Section,
    coverage_look,
    num,
    number_text,
    p_text,
    percent,
    with_interval,
    words,
)
from recast_eval.reporting.distrust import hacking
from recast_eval.reporting.facts import EvaluationFacts
from recast_eval.reporting.scores import Difference, Mean, Pair

ROLES = {"train": "training reward", "heldout": "held-out judge"}
LOOKS: dict[str, Look] = {"better": "good", "worse": "bad", "open": "open"}


def section(facts: EvaluationFacts, maker: Maker) -> Section | None:
    """The held-out table, matched differences and reward hacking."""
    if not facts.scores.scorers:
        return None
    blocks: list[Block] = [*_together(facts, maker), _table(facts, maker)]
    compared = [pair for pair in facts.pairs if facts.scores.of_pair(pair)]
    blocks += [_differences(facts, pair, maker) for pair in compared]
    if facts.scores.differences:
        blocks.append(_difference_table(facts, maker))
    blocks += _hacking(facts, maker)
    return Section(
        "scores",
        "Scores",
        "Higher is better for every scorer. Training rewards are what the models were trained "
        "on; held-out judges are what they were not, and the ones to believe.",
        tuple(blocks),
    )


def _together(facts: EvaluationFacts, maker: Maker) -> list[Block]:
    """What was optimised, as one number: the budget-weighted mean of the training rewards."""
    table = facts.aggregate
    if not table.scorers:
        return []
    rows = []
    for model in facts.models:
        mean = table.means[table.scorers[0], model]
        rows.append([words(model), _mean(mean, best=False), _coverage(mean), words("")])
    for d in table.differences:
        shown = number_text(d.estimate) + " (no interval)"
        if d.interval is not None:
            shown = with_interval(d.estimate, d.interval.low, d.interval.high)
        says = {"better": "higher", "worse": "lower", "open": "cannot be told apart"}[d.verdict]
        name = words(f"{d.pair[0]} minus {d.pair[1]}")
        count = Cell(f"{d.n_prompts} prompts", d.n_prompts)
        rows.append([name, Cell(shown, d.estimate), count, Cell(says, None, LOOKS[d.verdict])])
    return [
        maker.table(
            "All training rewards together",
            "The mean of an image's training rewards, weighted by the runs' budgets: what was "
            "optimised. Differences are on the same prompts, 95 % intervals clustered by prompt.",
            ["model or pair", "mean or difference", "n", "after Holm"],
            rows,
            source=facts.source,
        )
    ]


def _table(facts: EvaluationFacts, maker: Maker) -> Block:
    rows = []
    for scorer in facts.scores.scorers:
        means = [facts.scores.means[scorer, model] for model in facts.models]
        known = [m.estimate for m in means if m.estimate is not None]
        best = max(known) if len(known) > 1 else None
        row = [words(scorer), words(ROLES[facts.scores.roles[scorer]])]
        for mean in means:
            row.append(_mean(mean, best=mean.estimate is not None and mean.estimate == best))
            row.append(_coverage(mean))
        rows.append(row)
    head = ["scorer", "role"]
    for model in facts.models:
        head += [model, "n scored / n total"]
    return maker.table(
        "Every model on every scorer",
        "Means with 95 % intervals clustered by prompt. Bold is the highest mean, which is not "
        "yet a difference: that is in the next figures, where the same prompts are compared.",
        head,
        rows,
        source=facts.source,
    )


def _mean(mean: Mean, *, best: bool) -> Cell:
    if mean.estimate is None:
        return Cell("no data", None, "none")
    text = number_text(mean.estimate)
    if mean.interval is not None:
        text = with_interval(mean.estimate, mean.interval.low, mean.interval.high)
    return Cell(text, mean.estimate, "good" if best else "")


def _coverage(mean: Mean) -> Cell:
    return Cell(
        f"{mean.n_scored} / {mean.n_total}", None, coverage_look(mean.n_scored, mean.n_total)
    )


def _differences(facts: EvaluationFacts, pair: Pair, maker: Maker) -> Block:
    found = sorted(facts.scores.of_pair(pair), key=lambda d: d.role == "heldout")
    info = intervals_info(
        [_row(d) for d in found],
        x_label="difference in SD of prompt means",
        reference=0.0,
    )
    return maker.figure(
        "paired-differences", info, title=f"{pair[0]} minus {pair[1]}", source=facts.source
    )


def _row(d: Difference) -> Row:
    nan = float("nan")
    estimate, low, high = d.effect, nan, nan
    if d.scale and d.interval is not None:
        low = min(d.interval.low / d.scale, estimate)
        high = max(d.interval.high / d.scale, estimate)
    else:
        estimate = nan
    name, group = d.scorer, ROLES[d.role]
    return Row(name, estimate, low, high, group, d.n_pairs, d.n_pairs, d.p_adjusted)


def _difference_table(facts: EvaluationFacts, maker: Maker) -> Block:
    rows = []
    for d in facts.scores.differences:
        shown = number_text(d.estimate) + " (no interval)"
        if d.interval is not None:
            shown = with_interval(d.estimate, d.interval.low, d.interval.high)
        says = {"better": "higher", "worse": "lower", "open": "cannot be told apart"}[d.verdict]
        rows.append(
            [
                words(f"{d.pair[0]} minus {d.pair[1]}"),
                words(d.scorer),
                words(ROLES[d.role]),
                Cell(shown, d.estimate),
                num(d.effect, 2),
                Cell(percent(d.improved), d.improved),
                num(float(d.n_prompts), 6),
                Cell(p_text(d.p_adjusted), d.p_adjusted),
                words(says, LOOKS[d.verdict]),
            ]
        )
    return maker.table(
        "Differences on the same prompts",
        "Student's t over prompts, BCa bootstrap interval, p adjusted by Holm over this table. "
        "'Prompts improved' counts level prompts half.",
        [
            "pair",
            "scorer",
            "role",
            "difference [95 % interval]",
            "in SD",
            "prompts improved",
            "prompts",
            "adjusted p",
            "says",
        ],
        rows,
        source=facts.source,
    )


def _hacking(facts: EvaluationFacts, maker: Maker) -> list[Block]:
    points = []
    for model in facts.models:
        if model == facts.reference:
            continue
        train = _effects(facts, (model, facts.reference), "train")
        held = _effects(facts, (model, facts.reference), "heldout")
        if train and held:
            points.append(Point(model, sum(train) / len(train), sum(held) / len(held), ""))
    if not points:
        return []
    info = points_info(
        points,
        x_label=f"training rewards against {facts.reference} (mean SD)",
        y_label="held-out judges (mean SD)",
        cross=(0.0, 0.0),
    )
    blocks: list[Block] = [maker.figure("reward-hacking", info, source=facts.source)]
    flags = hacking(facts)
    blocks += [
        NoteBlock(
            f"{flag.model} against {flag.reference}: training rewards rose beyond chance "
            f"({', '.join(d.scorer for d in flag.risen)}) while held-out judges fell "
            f"({', '.join(d.scorer for d in flag.fallen)}). Look at the pictures.",
            "bad",
        )
        for flag in flags
    ]
    if not flags:
        blocks.append(
            NoteBlock(
                "No reward hacking found: no pair has a training reward that rose and a held-out "
                "judge that fell, both beyond chance after adjustment."
            )
        )
    return blocks


def _effects(facts: EvaluationFacts, pair: Pair, role: str) -> list[float]:
    found = facts.scores.of_pair(pair, role)
    return [d.effect for d in found if d.effect == d.effect]
