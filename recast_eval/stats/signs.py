"""Tests that need no distribution: who is ahead on more prompts."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from scipy import stats

from recast_eval.stats.checks import Ids, cluster_means, clusters, finite, outcomes

EXACT_UNITS = 18
"""Up to here all 2^n sign patterns are counted; beyond, they are drawn."""
_GRID_WORK = 100_000_000
"""Additions that an exact count over a grid may cost: 2,000 prompts of 8 pairs take 60 million."""


class SignCounts(NamedTuple):
    """Prompts on which the first model is ahead, behind, or level (left out of the test)."""

    wins: int
    losses: int
    dropped: int


def sign_counts(scores: ArrayLike, prompts: Ids) -> SignCounts:
    """Count prompts by the side that holds the majority of their pairs.

    Raises:
        ValueError: As ``sign_test``.
    """
    found = outcomes(scores)
    ahead = cluster_means(found - 0.5, clusters(prompts, len(found)))  # exact: halves add exactly
    return SignCounts(int(np.sum(ahead > 0)), int(np.sum(ahead < 0)), int(np.sum(ahead == 0)))


def sign_test(scores: ArrayLike, prompts: Ids) -> float:
    """Test "neither model is better", exactly, on the majority of each prompt.

    Args:
        scores: 1, 0.5 or 0 a pair.
        prompts: The prompt id of each pair.

    Returns:
        Two-sided p-value; 1 when every prompt is level. ``sign_counts`` says how many
        prompts were level and so dropped.

    Raises:
        ValueError: No pairs, another score or a missing prompt id.
    """
    counts = sign_counts(scores, prompts)
    return binomial_p(counts.wins, counts.losses)


def binomial_p(wins: int, losses: int) -> float:
    """Two-sided exact p-value of a fair coin; 1 when it was never thrown."""
    if wins < 0 or losses < 0:
        raise ValueError(f"counts are not negative, got {wins} and {losses}")
    if wins + losses == 0:
        return 1.0
    return float(stats.binomtest(wins, wins + losses).pvalue)


def sign_flip_test(
    differences: ArrayLike,
    prompts: Ids,
    *,
    rng: np.random.Generator,
    resamples: int = 9999,
) -> float:
    """Test "differences are as often up as down by as much" by flipping prompts' signs.

    Unlike the sign test it uses how large the difference is, and so tests the mean over prompts
    itself: a model may be ahead on most prompts and behind in the mean. For win rates give
    ``score - 0.5``; with one pair a prompt it then is the sign test.

    Args:
        differences: First minus second, an item each, in any unit.
        prompts: The prompt id of each item; a prompt's items flip together.
        rng: Used where patterns are drawn: more than 18 prompts that are not level, and
            differences other than those of win rates (or prompts of very many sizes).
        resamples: Patterns drawn then.

    Returns:
        Two-sided p-value of the mean over prompts: exact for win rates and for few prompts,
        else at least ``1 / (resamples + 1)``.

    Raises:
        ValueError: No items, a value that is not finite or a missing prompt id.
    """
    found = finite(differences, "differences")
    codes = clusters(prompts, len(found))
    means = cluster_means(found, codes)
    steps = _on_grid(found, means, np.bincount(codes))
    if steps is not None:
        return _exact_p(steps)
    means = means[means != 0]
    total = abs(float(means.sum()))
    slack = 1e-12 * float(np.abs(means).sum())  # sums that tie must count as ties
    if len(means) <= EXACT_UNITS:
        sums = np.zeros(1)
        for value in means:
            sums = np.concatenate([sums + value, sums - value])
        return float(np.mean(np.abs(sums) >= total - slack))
    extreme = 0
    for start in range(0, resamples, 512):
        rows = min(512, resamples - start)
        flips = rng.integers(2, size=(rows, len(means))) * 2 - 1
        extreme += int(np.sum(np.abs(flips @ means) >= total - slack))
    return (extreme + 1) / (resamples + 1)


def _on_grid(
    items: Float[np.ndarray, " item"],
    means: Float[np.ndarray, " prompt"],
    sizes: Int[np.ndarray, " prompt"],
) -> Int[np.ndarray, " prompt"] | None:
    """The means as whole numbers of one step, if items are halves and the count is feasible."""
    unit = 2 * math.lcm(*sizes.tolist())
    if unit > 10**6 or (2 * items != np.rint(2 * items)).any() or np.abs(items).max() > 1:
        return None
    steps = np.rint(means * unit).astype(np.int64)
    steps //= max(1, int(np.gcd.reduce(steps)))
    cheap = np.count_nonzero(steps) * int(np.abs(steps).sum()) <= _GRID_WORK
    return steps if cheap else None


def _exact_p(steps: Int[np.ndarray, " prompt"]) -> float:
    """Chance that steps with random signs add up to as much, either way."""
    total = abs(int(steps.sum()))
    if total == 0:
        return 1.0
    chances = np.ones(1)  # of each sum, from the least
    for step in np.sort(np.abs(steps[steps != 0])).tolist():
        wider = np.zeros(len(chances) + 2 * step)
        wider[: len(chances)] = chances / 2
        wider[2 * step :] += chances / 2
        chances = wider
    least = len(chances) // 2
    return min(1.0, 2 * float(chances[: least - total + 1].sum()))


def mcnemar(first_failed: ArrayLike, second_failed: ArrayLike) -> float:
    """Test, exactly, whether two models fail to be scored equally often on the same items.

    Args:
        first_failed: True where the first model has no score, an item each.
        second_failed: The same for the second.

    Returns:
        Two-sided p-value from the items on which exactly one failed.

    Raises:
        ValueError: The lengths differ.

    References:
        McNemar 1947, Note on the sampling error of the difference between correlated
        proportions.
    """
    first: Bool[np.ndarray, " item"] = np.asarray(first_failed, dtype=bool)
    second: Bool[np.ndarray, " item"] = np.asarray(second_failed, dtype=bool)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"two flags an item, got shapes {first.shape} and {second.shape}")
    return binomial_p(int(np.sum(first & ~second)), int(np.sum(second & ~first)))
