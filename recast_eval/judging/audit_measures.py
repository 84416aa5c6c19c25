"""Numbers of an audit that come from verdicts alone."""

from collections.abc import Hashable, Sequence
from itertools import groupby

import numpy as np

from recast_eval.judging.audit_records import (
    JudgeAgreement,
    Measure,
    Measured,
    NotMeasured,
    NullTest,
    Position,
)
from recast_eval.judging.records import VerdictRecord
from recast_eval.stats import Interval, Undefined, agreement, krippendorff_alpha, win_rate

Item = tuple[str, int, str, str]
"""(prompt_id, sample, the two models in alphabetical order)."""


def share(values: Sequence[float], prompts: Sequence[Hashable], lacking: str) -> Measure:
    """A share with Wilson's clustered interval, or why there is none.

    Args:
        values: 0, 0.5 or 1 an item.
        prompts: The prompt id of each.
        lacking: What to say if there are no items.
    """
    if not values:
        return NotMeasured(reason=lacking)
    rate = win_rate(values, prompts)
    return Measured(
        estimate=rate.estimate,
        low=rate.low,
        high=rate.high,
        n=rate.n_pairs,
        n_prompts=rate.n_prompts,
    )


def measure(found: Interval | Undefined, n: int, prompts: int) -> Measure:
    """An interval of ``recast_eval.stats`` as a record."""
    if isinstance(found, Undefined):
        return NotMeasured(reason=found.reason)
    return Measured(estimate=found.estimate, low=found.low, high=found.high, n=n, n_prompts=prompts)


def item_of(record: VerdictRecord) -> Item:
    """What a record is about, whoever judged it."""
    low, high = sorted((record.model_a, record.model_b))
    return (record.prompt_id, record.sample, low, high)


def label_of(record: VerdictRecord, axis: str) -> str | None:
    """``win NAME``, ``tie`` (a flip is one) or None where there is no verdict."""
    outcome = record.axes.get(axis)
    if outcome is None or outcome.state == "unscored":
        return None
    return f"win {outcome.winner}" if outcome.state == "win" else "tie"


def position(records: Sequence[VerdictRecord], axis: str) -> Position:
    """Read the order of the pictures against the verdicts."""
    firsts: list[float] = []
    first_prompts: list[str] = []
    same: list[float] = []
    same_prompts: list[str] = []
    flips: list[float] = []
    ties: list[float] = []
    prompts: list[str] = []
    for record in records:
        winners = []
        for order in record.orders:
            choice = order.verdict.get(axis)
            if choice is None or choice.state == "tie":
                continue
            winners.append(choice.winner)
            firsts.append(float(choice.winner == order.first))
            first_prompts.append(record.prompt_id)
        if len(winners) == 2:
            same.append(float(winners[0] == winners[1]))
            same_prompts.append(record.prompt_id)
        outcome = record.axes.get(axis)
        if outcome is not None and outcome.state != "unscored":
            flips.append(float(outcome.state == "flip"))
            ties.append(float(outcome.state == "tie"))
            prompts.append(record.prompt_id)
    return Position(
        first_slot=share(firsts, first_prompts, "no reply names a picture"),
        same_winner=share(same, same_prompts, "no pair has a winner in both orders"),
        flips=share(flips, prompts, "no pair was scored"),
        ties=share(ties, prompts, "no pair was scored"),
    )


def repeats(records: Sequence[VerdictRecord], axis: str, rng: np.random.Generator) -> Measure:
    """Agreement of repeated questions, flips told from ties."""

    def key(record: VerdictRecord) -> Item:
        return item_of(record)

    rows = []
    for item, group in groupby(sorted(records, key=key), key=key):
        labels = [_state(record, axis) for record in group]
        if len(labels) > 1:
            rows.append((item[0], labels))
    if not rows:
        return NotMeasured(reason="nothing was asked twice: judge --repeats 3 on a sample")
    most = max(len(labels) for _, labels in rows)
    columns = [labels + [None] * (most - len(labels)) for _, labels in rows]
    prompts = [prompt for prompt, _ in rows]
    found = krippendorff_alpha(list(zip(*columns, strict=True)), prompts, rng=rng)
    if isinstance(found, Undefined):
        known = [label for labels in columns for label in labels if label is not None]
        if known and len(set(known)) == 1:
            return NotMeasured(reason=f"all {len(known)} answers are {known[0]!r}")
    return measure(found, len(rows), len(set(prompts)))


def _state(record: VerdictRecord, axis: str) -> str | None:
    outcome = record.axes.get(axis)
    if outcome is None or outcome.state == "unscored":
        return None
    return f"win {outcome.winner}" if outcome.state == "win" else outcome.state


def null_test(records: Sequence[VerdictRecord], axis: str, what: str, original: str) -> NullTest:
    """Read answers to a question that has no right one.

    Args:
        records: Of one judge and one kind of copy.
        axis: Which axis.
        what: ``same image`` or ``re-encoded image``.
        original: Model id of the original.
    """
    firsts: list[float] = []
    ties: list[float] = []
    prompts: list[str] = []
    scores: list[float] = []
    scored: list[str] = []
    for record in records:
        for order in record.orders:
            choice = order.verdict.get(axis)
            if choice is None:
                continue
            tie = choice.state == "tie"
            firsts.append(0.5 if tie else float(choice.winner == order.first))
            ties.append(float(tie))
            prompts.append(record.prompt_id)
        outcome = record.axes.get(axis)
        if outcome is not None and outcome.score_a is not None:
            flip = record.model_a != original
            scores.append(1 - outcome.score_a if flip else outcome.score_a)
            scored.append(record.prompt_id)
    lacking = "no reply was read"
    return NullTest(
        what="same image" if what == "same image" else "re-encoded image",
        asked=len(records),
        scored=len(scores),
        first_slot=share(firsts, prompts, lacking),
        tie=share(ties, prompts, lacking),
        original_wins=share(scores, scored, lacking),
    )


def other_judge(
    mine: dict[Item, VerdictRecord],
    theirs: dict[Item, VerdictRecord],
    axes: tuple[str, str],
    name: str,
    rng: np.random.Generator,
) -> JudgeAgreement | None:
    """Agreement of two judges on the pairs that both saw; None if there are none."""
    items = [item for item in mine if item in theirs]
    if not items:
        return None
    found = agreement(
        [label_of(mine[item], axes[0]) for item in items],
        [label_of(theirs[item], axes[1]) for item in items],
        [item[0] for item in items],
        rng=rng,
    )
    return JudgeAgreement(
        judge=name,
        raw=measure(found.raw, found.n_items, found.n_prompts),
        kappa=measure(found.kappa, found.n_items, found.n_prompts),
    )
