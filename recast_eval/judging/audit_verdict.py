"""From an audit's numbers to one line: trust it, trust it with care, uninformative."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recast_eval.judging.audit_records import (
    Human,
    Level,
    Measure,
    Measured,
    NullTest,
    Position,
    PropertyBias,
    ScorerAgreement,
)

MANY_FLIPS = 0.2
SLOT_LEAN = 0.1
"""How far from 0.5 the share of the first slot may lie before it matters."""
FULL_COVERAGE = 0.95
MOSTLY_TIES = 0.9
STRONG_SLOPE = 0.5
"""Log-odds per standard deviation of a picture property: odds times 1.65."""
STEADY = 0.8
"""Krippendorff's alpha that repeated questions should reach."""
FEW = 40
BARELY = 0.6
"""Orders that agree less often than this may be two coins, unless the interval says otherwise."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the line is made of."""

    n_scored: int
    n_total: int
    n_prompts: int
    ties: int
    """Pairs called a tie; flips are not among them."""
    position: Position | None
    repeats: Measure
    nulls: Sequence[NullTest]
    properties: Sequence[PropertyBias]
    scorers: Sequence[ScorerAgreement]
    human: Human | None


def conclude(facts: Facts) -> tuple[Level, list[str]]:
    """Decide, and say why; the gravest reasons come first."""
    grave = list(_grave(facts))
    if grave:
        return "uninformative", grave
    care = list(_care(facts))
    return ("trust it with care", care) if care else ("trust it", list(_good(facts)))


def line(level: Level, reasons: Sequence[str]) -> str:
    """The verdict in one line."""
    text = "; ".join(reasons[:3])
    more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return f"{level}: {text}{more}"


def _grave(facts: Facts) -> Iterator[str]:
    if facts.n_scored == 0:
        yield f"0 of {facts.n_total} pairs scored"
        return
    if facts.position is not None:
        yield from _by_chance(facts.position)
    if facts.ties > MOSTLY_TIES * facts.n_scored:
        yield f"it calls {_percent(facts.ties / facts.n_scored)} of pairs a tie"
    if facts.human is not None and isinstance(facts.human.accuracy, Measured):
        right = facts.human.accuracy
        if right.high <= 0.5 or (right.estimate <= 0.5 and right.n >= FEW):
            yield f"people agree with {_span(right)} of its decisive verdicts: no more than chance"


def _by_chance(position: Position) -> Iterator[str]:
    """Both orders must agree more often than two coins."""
    same, first = position.same_winner, position.first_slot
    if not isinstance(same, Measured):
        return
    if same.low <= 0.5 and same.estimate < BARELY:
        if isinstance(first, Measured) and abs(first.estimate - 0.5) > 0.25:
            slot = "first" if first.estimate > 0.5 else "second"
            often = _percent(max(first.estimate, 1 - first.estimate))
            yield f"it names the {slot} picture in {often} of its replies, whatever it shows"
        yield (
            f"swapping the pictures changes {_percent(1 - same.estimate)} of its decisive "
            "verdicts: no better than chance"
        )


def _care(facts: Facts) -> Iterator[str]:
    if facts.n_scored < FULL_COVERAGE * facts.n_total:
        yield f"only {facts.n_scored} of {facts.n_total} pairs scored"
    if facts.n_prompts < FEW:
        yield f"only {facts.n_prompts} prompts"
    if facts.position is not None:
        yield from _leans(facts.position)
    elif facts.human is None and not any(s.role == "heldout" for s in facts.scorers):
        yield "nothing independent to check it against: no order, no people, no other scorer"
    yield from _from_nulls(facts.nulls)
    if isinstance(facts.repeats, Measured) and facts.repeats.estimate < STEADY:
        yield f"asked again it answers otherwise (alpha {facts.repeats.estimate:.2f})"
    yield from _tastes(facts)
    human = facts.human.accuracy if facts.human is not None else None
    if isinstance(human, Measured) and human.low <= 0.5:
        yield f"too few votes to say that people agree ({_span(human)})"


def _tastes(facts: Facts) -> Iterator[str]:
    for bias in facts.properties:
        slope = bias.slope
        if not isinstance(slope, Measured) or bias.p_holm >= 0.05:
            continue
        if abs(slope.estimate) > STRONG_SLOPE:
            more = "more" if slope.estimate > 0 else "less"
            yield f"it prefers {more} {bias.name} ({slope.estimate:+.2f} log-odds per SD)"
    for scorer in facts.scorers:
        side = scorer.same_side
        if scorer.role == "heldout" and isinstance(side, Measured) and side.high < 0.5:
            yield f"it contradicts held-out {scorer.scorer} ({_span(side)} on the same side)"


def _leans(position: Position) -> Iterator[str]:
    flips, first, same = position.flips, position.first_slot, position.same_winner
    if isinstance(flips, Measured) and flips.estimate > MANY_FLIPS:
        yield f"{_percent(flips.estimate)} of verdicts flip when the pictures are swapped"
    elif isinstance(same, Measured) and same.low <= 0.5:
        yield f"too few pairs to tell its verdicts from chance ({_span(same)} survive a swap)"
    far = isinstance(first, Measured) and abs(first.estimate - 0.5) > SLOT_LEAN
    if far and isinstance(first, Measured) and not first.low <= 0.5 <= first.high:
        yield f"it names the first picture in {_span(first)} of replies"


def _from_nulls(nulls: Sequence[NullTest]) -> Iterator[str]:
    for null in nulls:
        first, wins = null.first_slot, null.original_wins
        if null.scored < null.asked:
            yield f"null test ({null.what}): only {null.scored} of {null.asked} scored"
        if isinstance(first, Measured) and not first.low <= 0.5 <= first.high:
            yield f"null test ({null.what}): the first slot gets {_span(first)}"
        if isinstance(wins, Measured) and not wins.low <= 0.5 <= wins.high:
            yield f"null test ({null.what}): the original wins {_span(wins)}"


def _good(facts: Facts) -> Iterator[str]:
    yield f"{facts.n_scored} of {facts.n_total} pairs scored"
    if facts.position is not None and isinstance(facts.position.same_winner, Measured):
        yield f"{_span(facts.position.same_winner)} of decisive verdicts survive a swap"
    else:
        yield "it has no order to listen to"
    if not facts.nulls:
        yield "null tests were not asked"


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _span(found: Measured) -> str:
    return f"{100 * found.estimate:.0f} % [{100 * found.low:.0f}, {100 * found.high:.0f}]"
