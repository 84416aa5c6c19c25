"""From what was said to what is known: both orders are one observation. Pure."""

from collections.abc import Mapping, Sequence

from recast_eval.judging.records import AxisOutcome, Choice, FailureKind, OrderRecord, Vote


def choices(verdict: Mapping[str, str], first: str, second: str) -> dict[str, Choice]:
    """Turn slot tokens into model ids: A was shown first."""
    named = {"A": first, "B": second}
    return {
        axis: Choice(state="win", winner=named[slot]) if slot in named else Choice(state="tie")
        for axis, slot in verdict.items()
    }


def unscored(axes: Sequence[str], reason: FailureKind) -> dict[str, AxisOutcome]:
    """The same reason on every axis."""
    return {axis: AxisOutcome(state="unscored", reason=reason) for axis in axes}


def won(winner: str, model_a: str) -> AxisOutcome:
    """A win."""
    return AxisOutcome(state="win", winner=winner, score_a=1.0 if winner == model_a else 0.0)


def tied(*, one_tie: bool = False, no_majority: bool = False) -> AxisOutcome:
    """A tie."""
    return AxisOutcome(state="tie", score_a=0.5, one_tie=one_tie, no_majority=no_majority)


def combine_orders(
    axes: Sequence[str], orders: Sequence[OrderRecord], model_a: str
) -> dict[str, AxisOutcome]:
    """One outcome an axis from all orders of a pair.

    If any order failed the pair is unscored: half an observation would carry the judge's
    position bias into the rate.
    """
    failed = next((o.reason for o in orders if o.reason is not None), None)
    if failed is not None:
        return unscored(axes, failed)
    return {axis: _one_axis([o.verdict[axis] for o in orders], model_a) for axis in axes}


def _one_axis(said: Sequence[Choice], model_a: str) -> AxisOutcome:
    winners = {c.winner for c in said if c.winner is not None}
    ties = sum(c.state == "tie" for c in said)
    if len(winners) > 1:
        return AxisOutcome(state="flip", score_a=0.5)
    if ties:
        return tied(one_tie=bool(winners))
    return won(next(iter(winners)), model_a)


def compare_grades(
    axes: Sequence[str],
    grades: Mapping[str, Mapping[str, float]],
    model_a: str,
    model_b: str,
    margin: float = 0.0,
) -> dict[str, AxisOutcome]:
    """The higher grade wins; a difference of at most ``margin`` is a tie."""
    found = {}
    for axis in axes:
        difference = grades[model_a][axis] - grades[model_b][axis]
        if abs(difference) <= margin:
            found[axis] = tied()
        else:
            found[axis] = won(model_a if difference > 0 else model_b, model_a)
    return found


def jury_verdict(
    axes: Sequence[str], votes: Sequence[Vote], model_a: str, model_b: str, quorum: int
) -> dict[str, AxisOutcome]:
    """Majority over families, each with one vote; no choice above half is a tie, said as such.

    A member's flip is a vote for a tie; an unscored member does not vote. The order of the
    members never matters.

    Args:
        axes: Axes of the jury.
        votes: One a member.
        model_a: First model of the pair.
        model_b: The other one.
        quorum: Fewest families with a vote; below it the axis is unscored.
    """
    return {axis: _one_jury_axis(axis, votes, model_a, model_b, quorum) for axis in axes}


def _one_jury_axis(
    axis: str, votes: Sequence[Vote], model_a: str, model_b: str, quorum: int
) -> AxisOutcome:
    families: dict[str, list[float]] = {}
    for vote in votes:
        outcome = vote.axes.get(axis)
        if outcome is not None and outcome.score_a is not None:
            families.setdefault(vote.family, []).append(outcome.score_a)
    if len(families) < quorum or not families:
        return AxisOutcome(state="unscored", reason="no_quorum")
    means = [sum(scores) / len(scores) for scores in families.values()]
    for_a = sum(m > 0.5 for m in means)
    for_b = sum(m < 0.5 for m in means)
    half = len(means) / 2
    if for_a > half:
        return won(model_a, model_a)
    if for_b > half:
        return won(model_b, model_a)
    return tied(no_majority=len(means) - for_a - for_b <= half)
