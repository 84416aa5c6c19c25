"""Scores: every model on every scorer, and differences on the same prompts."""

import numpy as np

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
    interval_cell,
    minus,
    number_text,
    p_text,
    percent,
    words,
)
from recast_eval.reporting.distrust import hacking
from recast_eval.reporting.facts import EvaluationFacts
from recast_eval.reporting.scores import Difference, Mean, Pair, prompt_effects
from recast_eval.stats import Interval, paired_difference

ROLES = {"train": "training reward", "heldout": "held-out judge"}
LOOKS: dict[str, Look] = {"better": "good", "worse": "bad", "open": "open"}
SAYS = {"better": "higher", "worse": "lower", "open": "cannot be told apart"}


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
        name = words(f"{d.pair[0]} minus {d.pair[1]}")
        count = words(f"{d.n_prompts} prompts")
        rows.append([name, _difference(d), count, Cell(SAYS[d.verdict], None, LOOKS[d.verdict])])
    return [
        maker.table(
            "All training rewards together",
            "The mean of an image's training rewards, weighted by the runs' budgets: what was "
            "optimised. Differences are on the same prompts, 95 % intervals clustered by prompt. "
            "The last column counts the comparisons of this table (Holm's adjustment).",
            ["model or pair", "mean or difference [95 % interval]", "n scored / n total", "says"],
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
    look: Look = "good" if best else ""
    if mean.interval is None:
        return Cell(number_text(mean.estimate), mean.estimate, look)
    return interval_cell(mean.estimate, mean.interval.low, mean.interval.high, look)


def _difference(d: Difference) -> Cell:
    if d.interval is None:
        return Cell(f"{number_text(d.estimate)} (no interval)", d.estimate)
    return interval_cell(d.estimate, d.interval.low, d.interval.high)


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
        effect = minus(f"{d.effect:.2f}") if d.scale else "no data"
        rows.append(
            [
                words(f"{d.pair[0]} minus {d.pair[1]}"),
                words(d.scorer),
                words(ROLES[d.role]),
                _difference(d),
                Cell(effect, d.effect if d.scale else None, "" if d.scale else "none"),
                Cell(percent(d.improved), d.improved),
                Cell(f"{d.n_prompts:,}", d.n_prompts),
                Cell(p_text(d.p_adjusted), d.p_adjusted),
                words(SAYS[d.verdict], LOOKS[d.verdict]),
            ]
        )
    return maker.table(
        "Differences on the same prompts",
        "First minus second, in the scorer's own unit and in standard deviations (SD) of its "
        "prompt means. Each interval is of its row alone (BCa bootstrap over prompts); the "
        "adjusted p (Student's t over prompts, Holm over this table) counts all rows, and decides "
        "what the last column says. 'Prompts improved' counts level prompts half.",
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
        train = _mean_effect(facts, (model, facts.reference), "train")
        held = _mean_effect(facts, (model, facts.reference), "heldout")
        if train and held:
            points.append(Point(model, train[0], held[0], "", train[1], held[1]))
    if not points:
        return []
    info = points_info(
        points,
        x_label=f"training rewards, change from {facts.reference} (SD)",
        y_label="held-out judges, change (SD)",
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


def _mean_effect(
    facts: EvaluationFacts, pair: Pair, role: str
) -> tuple[float, float | None] | None:
    """Mean over prompts of the mean effect on a role's scorers, and its half-width."""
    found = prompt_effects(facts.scores, pair, role).to_numpy()
    if not len(found):
        return None
    zero = np.zeros_like(found)
    gap = paired_difference(
        found, zero, list(range(len(found))), rng=np.random.default_rng(0), resamples=1
    )
    half = gap.t.high - gap.estimate if isinstance(gap.t, Interval) else None
    return gap.estimate, half
