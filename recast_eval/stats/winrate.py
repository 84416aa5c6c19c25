"""Win rates with the prompt as the unit."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from recast_eval.stats.checks import Ids, cluster_means, clusters, fraction, outcomes
from recast_eval.stats.intervals import (
    Undefined,
    normal_critical,
    standard_error,
    t_critical,
    wilson,
)

FEW_PROMPTS = 40
"""Below this many prompts the normal quantile is too short and Student's t replaces it."""


@dataclass(frozen=True, slots=True)
class WinRate:
    """A win rate in [0, 1], its interval and what stands behind it."""

    estimate: float
    low: float
    high: float
    n_prompts: int
    n_pairs: int
    n_effective: float
    """Independent pairs that would give the same certainty."""
    tie_share: float
    """Share of pairs scored 0.5, from agreement on a tie or from a flip."""
    level: float
    few_prompts: bool
    """Fewer than 40 prompts: read the interval with care, look at a permutation test too."""


def win_rate(
    scores: ArrayLike,
    prompts: Ids,
    *,
    level: float = 0.95,
    method: Literal["wilson", "t"] = "wilson",
) -> WinRate:
    """Estimate how often the first model beats the second, a tie counting half.

    The pairs of a prompt are averaged first and prompts weigh alike. The default interval is
    Wilson's with the effective number of pairs ``p (1 - p) / SE^2``, SE clustered by prompt,
    never more than the pairs scored; where prompts do not differ at all (SE 0) it is the
    number of prompts. Under 40 prompts Student's t replaces the normal quantile. ``method="t"``
    is the cluster-t interval, cut to [0, 1]; it too falls back on Wilson where SE is 0.

    Args:
        scores: A pair each: 1 the first model won, 0 it lost, 0.5 a tie or a flip. Pairs that
            were not scored are left out here and counted by ``worst_case``.
        prompts: The prompt id of each pair.
        level: Coverage, in (0, 1).
        method: Which interval.

    Returns:
        The rate and its interval, never of zero width.

    Raises:
        ValueError: No pairs, another score, a missing id or a level outside (0, 1).

    References:
        Miller 2024, Adding error bars to evals, arXiv 2411.00640 (clustering); Wilson 1927;
        Cameron, Gelbach and Miller 2008 (few clusters).
    """
    found = outcomes(scores)
    level = fraction(level, "level")
    means = cluster_means(found, clusters(prompts, len(found)))
    rate, count = float(means.mean()), len(means)
    error = standard_error(means) if count > 1 else 0.0  # one prompt has no spread: n = P = 1
    effective = min(rate * (1 - rate) / error**2, len(found)) if error else float(count)
    few = count < FEW_PROMPTS
    critical = t_critical(level, count) if few and error else normal_critical(level)
    if method == "t" and error:
        half = t_critical(level, count) * error
        low, high = max(0.0, rate - half), min(1.0, rate + half)
    else:
        low, high = wilson(rate, effective, critical)
    ties = float(np.mean(found == 0.5))
    return WinRate(rate, low, high, count, len(found), float(effective), ties, level, few)


def decisive_win_rate(
    scores: ArrayLike, prompts: Ids, *, level: float = 0.95
) -> WinRate | Undefined:
    """Estimate the win rate over pairs that were not ties; shown beside the headline.

    Args:
        scores: 1, 0.5 or 0 a pair.
        prompts: The prompt id of each pair.
        level: Coverage, in (0, 1).

    Returns:
        The rate, or ``Undefined`` where every pair is a tie.

    Raises:
        ValueError: As ``win_rate``.
    """
    found = outcomes(scores)
    clusters(prompts, len(found))
    keep = np.flatnonzero(found != 0.5)
    if keep.size == 0:
        return Undefined(f"all {len(found)} pairs are ties")
    ids = list(prompts)
    return win_rate(found[keep], [ids[i] for i in keep], level=level)


@dataclass(frozen=True, slots=True)
class WorstCase:
    """Where the win rate could lie had every unscored pair been scored."""

    low: float
    """The rate, were all of them lost."""
    high: float
    """The rate, were all of them won."""
    low_end: float
    """Lower end of the interval in the first case."""
    high_end: float
    """Upper end of the interval in the second."""
    n_scored: int
    n_total: int


def worst_case(
    scores: ArrayLike,
    prompts: Ids,
    unscored: Ids,
    *,
    level: float = 0.95,
) -> WorstCase:
    """Bound a win rate by giving every unscored pair to one side, then to the other.

    Args:
        scores: The scored pairs; may be empty.
        prompts: Their prompt ids.
        unscored: The prompt id of each pair that has no verdict.
        level: Coverage, in (0, 1).

    Returns:
        Both rates and the outer ends of their intervals.

    Raises:
        ValueError: No pair at all, or a malformed input.

    References:
        Manski 1990, Nonparametric bounds on treatment effects.
    """
    given = np.asarray(scores, dtype=np.float64).ravel()
    ids = [*prompts, *unscored]
    lost = win_rate([*given, *np.zeros(len(unscored))], ids, level=level)
    won = win_rate([*given, *np.ones(len(unscored))], ids, level=level)
    return WorstCase(lost.estimate, won.estimate, lost.low, won.high, len(given), lost.n_pairs)
