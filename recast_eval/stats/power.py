"""What a run of a given size can settle, and what size settles a given difference."""

import math
from dataclasses import dataclass

from scipy import optimize

from recast_eval.stats.checks import fraction
from recast_eval.stats.intervals import normal_critical


@dataclass(frozen=True, slots=True)
class Need:
    """What it takes; each pair costs two judge calls, one an order."""

    decisive_pairs: int
    """Pairs that do not tie, were all independent."""
    pairs: int
    """Pairs to judge, ties among them, were all independent."""
    pairs_clustered: int
    """Pairs to judge with several images a prompt."""
    prompts: int


def pairs_needed(
    rate: float,
    *,
    level: float = 0.95,
    power: float = 0.8,
    tie_share: float = 0.0,
    pairs_per_prompt: int = 1,
    within_correlation: float = 0.25,
) -> Need:
    """Count the pairs with which a two-sided sign test finds a given win rate.

    Args:
        rate: True win rate among decisive pairs, in (0, 1) and not 0.5.
        level: 1 minus the chance of a false alarm.
        power: Chance of finding the difference, in (0, 1).
        tie_share: Share of pairs that tie, in [0, 1).
        pairs_per_prompt: Images of a prompt that each model draws.
        within_correlation: Intraclass correlation of a prompt's pairs, in [0, 1].

    Returns:
        Counts, each rounded up.

    Raises:
        ValueError: An argument is out of range, or the rate is 0.5, which no size settles.

    References:
        Normal approximation of the sign test; Kish 1965 for the design effect
        ``1 + (m - 1) rho``.
    """
    rate, power = fraction(rate, "rate"), fraction(power, "power")
    if rate == 0.5:
        raise ValueError("a rate other than 0.5 can be found, got 0.5")
    _check(tie_share, pairs_per_prompt, within_correlation)
    alarm = normal_critical(fraction(level, "level"))
    hit = normal_critical(2 * power - 1) if power > 0.5 else -normal_critical(1 - 2 * power)
    spread = alarm * 0.5 + hit * math.sqrt(rate * (1 - rate))
    decisive = _up((spread / (rate - 0.5)) ** 2)
    pairs = decisive / (1 - tie_share)
    clustered = pairs * (1 + (pairs_per_prompt - 1) * within_correlation)
    prompts = _up(clustered / pairs_per_prompt)
    return Need(decisive, _up(pairs), _up(clustered), prompts)


def detectable_rate(
    prompts: int,
    *,
    level: float = 0.95,
    power: float = 0.8,
    tie_share: float = 0.0,
    pairs_per_prompt: int = 1,
    within_correlation: float = 0.25,
) -> float:
    """Find the smallest win rate above 0.5 that a run of this size would detect.

    Args:
        prompts: Prompts judged.
        level: As in ``pairs_needed``, like all that follows.
        power: Chance of finding it.
        tie_share: Share of pairs that tie.
        pairs_per_prompt: Images of a prompt that each model draws.
        within_correlation: Intraclass correlation of a prompt's pairs.

    Returns:
        Win rate among decisive pairs, in (0.5, 1]; 1 where even that would be missed.

    Raises:
        ValueError: An argument is out of range.
    """
    if prompts < 1:
        raise ValueError(f"a run has at least one prompt, got {prompts}")
    _check(tie_share, pairs_per_prompt, within_correlation)
    level, power = fraction(level, "level"), fraction(power, "power")
    design = 1 + (pairs_per_prompt - 1) * within_correlation
    decisive = prompts * pairs_per_prompt / design * (1 - tie_share)
    alarm = normal_critical(level)
    hit = normal_critical(2 * power - 1) if power > 0.5 else -normal_critical(1 - 2 * power)

    def missing(rate: float) -> float:
        spread = alarm * 0.5 + hit * math.sqrt(rate * (1 - rate))
        return spread - (rate - 0.5) * math.sqrt(decisive)

    if missing(1.0) >= 0:
        return 1.0
    return float(optimize.brentq(missing, 0.5, 1.0))


def _check(tie_share: float, pairs_per_prompt: int, within_correlation: float) -> None:
    if not 0 <= tie_share < 1:
        raise ValueError(f"tie_share lies in [0, 1), got {tie_share!r}")
    if pairs_per_prompt < 1:
        raise ValueError(f"a prompt has at least one pair, got {pairs_per_prompt!r}")
    if not 0 <= within_correlation <= 1:
        raise ValueError(f"within_correlation lies in [0, 1], got {within_correlation!r}")


def _up(value: float) -> int:
    return math.ceil(value - 1e-9)  # 485.00000000000006 is 485
