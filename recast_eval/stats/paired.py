"""Differences of scores on the same prompts, and of runs with the same seeds."""

import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import stats

from recast_eval.stats.checks import Ids, cluster_means, clusters, finite, fraction
from recast_eval.stats.intervals import (
    Interval,
    Undefined,
    normal_critical,
    standard_error,
    t_critical,
    wilson,
)
from recast_eval.stats.signs import binomial_p


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """First minus second, in the unit of the scores."""

    estimate: float
    t: Interval | Undefined
    """Student's interval over prompts."""
    bca: Interval | Undefined
    """Bias-corrected and accelerated bootstrap over prompts."""
    p: float
    """Two-sided p-value of the t statistic; 1 with a single prompt."""
    improved: Interval
    """Share of prompts on which the first is higher (level prompts count half)."""
    n_prompts: int
    n_pairs: int


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    prompts: Ids,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = 2000,
) -> PairedDifference:
    """Compare two models' scores image by image, with the prompt as the unit.

    Args:
        first: A score each, in any unit, higher is better.
        second: The other model's score for the same prompt and seed.
        prompts: The prompt id of each pair.
        rng: For the bootstrap, which draws whole prompts.
        level: Coverage, in (0, 1).
        resamples: Bootstrap draws.

    Returns:
        Mean difference over prompts with two intervals. With one prompt, both are
        ``Undefined``; where all prompts differ by the same amount, the bootstrap is.

    Raises:
        ValueError: Lengths differ, a score is not finite, or a prompt id is missing.

    References:
        Miller 2024, Adding error bars to evals, arXiv 2411.00640; Efron 1987, Better bootstrap
        confidence intervals; Koehn 2004, Statistical significance tests for machine translation.
    """
    one, two = finite(first, "scores of the first"), finite(second, "scores of the second")
    if one.shape != two.shape:
        raise ValueError(f"scores come in pairs, got {len(one)} and {len(two)}")
    level = fraction(level, "level")
    means = cluster_means(one - two, clusters(prompts, len(one)))
    count, mean = len(means), float(means.mean())
    ahead = float(np.mean(np.where(means > 0, 1.0, np.where(means < 0, 0.0, 0.5))))
    improved = Interval(ahead, *wilson(ahead, count, normal_critical(level)))
    return PairedDifference(
        estimate=mean,
        t=_t_interval(means, level),
        bca=_bca_interval(means, level, rng, resamples),
        p=_t_p_value(means),
        improved=improved,
        n_prompts=count,
        n_pairs=len(one),
    )


def _t_interval(means: Float[np.ndarray, " unit"], level: float) -> Interval | Undefined:
    if len(means) < 2:
        return Undefined("one unit has no spread")
    mean, half = float(means.mean()), t_critical(level, len(means)) * standard_error(means)
    return Interval(mean, mean - half, mean + half)


def _t_p_value(means: Float[np.ndarray, " unit"]) -> float:
    if len(means) < 2:
        return 1.0
    mean, error = float(means.mean()), standard_error(means)
    if error == 0:  # all units moved alike: only their signs can be tested
        return binomial_p(len(means), 0) if mean else 1.0
    return float(2 * stats.t.sf(abs(mean) / error, len(means) - 1))


def _bca_interval(
    means: Float[np.ndarray, " unit"], level: float, rng: np.random.Generator, resamples: int
) -> Interval | Undefined:
    if len(means) < 2:
        return Undefined("one unit has no spread")
    if standard_error(means) == 0:
        return Undefined("all units differ by the same amount: resampling them shows no spread")
    with warnings.catch_warnings(action="ignore"):  # its degenerate case is judged below
        found = stats.bootstrap(
            (means,),
            np.mean,
            confidence_level=level,
            n_resamples=resamples,
            batch=256,
            method="BCa",
            rng=rng,
        ).confidence_interval
    if not (np.isfinite(found.low) and np.isfinite(found.high)):
        return Undefined(f"too few distinct resamples of {len(means)} units")
    return Interval(float(means.mean()), float(found.low), float(found.high))


@dataclass(frozen=True, slots=True)
class MatchedRuns:
    """Two methods compared run by run, each pair with the same budget and seed."""

    wins: int
    losses: int
    ties: int
    p: float
    """Exact two-sided sign test over the pairs that are not level."""
    difference: float
    """Mean over pairs, first minus second, in the unit of the runs."""
    t: Interval | Undefined
    unmatched: tuple[Hashable, ...]
    """Runs that only one method has; they are not used, and should be shown."""


def matched_runs(
    first: Mapping[Hashable, float], second: Mapping[Hashable, float], *, level: float = 0.95
) -> MatchedRuns:
    """Compare methods over runs matched by key: the run, not the image, is the unit.

    Args:
        first: Run key, such as (budget, seed) -> that run's result, higher is better.
        second: The same for the other method.
        level: Coverage, in (0, 1).

    Returns:
        Wins, losses and ties over matched runs, and their mean difference.

    Raises:
        ValueError: No key is shared, or a result is not finite.
    """
    level = fraction(level, "level")
    keys = [key for key in first if key in second]
    if not keys:
        raise ValueError(f"no run matches: keys {list(first)[:3]} and {list(second)[:3]}")
    gaps = finite([first[k] for k in keys], "results") - finite(
        [second[k] for k in keys], "results"
    )
    wins, losses = int(np.sum(gaps > 0)), int(np.sum(gaps < 0))
    alone = [k for k in first if k not in second] + [k for k in second if k not in first]
    return MatchedRuns(
        wins,
        losses,
        len(keys) - wins - losses,
        binomial_p(wins, losses),
        float(gaps.mean()),
        _t_interval(gaps, level),
        tuple(alone),
    )
