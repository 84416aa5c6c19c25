"""Curves over timesteps with a band that holds everywhere at once, and honest choice of lambda."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from recast_eval.stats.checks import Ids, clusters, finite, fraction
from recast_eval.stats.intervals import Interval, Undefined, standard_error, t_critical


@dataclass(frozen=True, slots=True)
class Band:
    """A mean curve and the band that covers all of it with the asked probability."""

    estimate: Float[np.ndarray, " step"]
    low: Float[np.ndarray, " step"]
    high: Float[np.ndarray, " step"]
    critical: float
    """Standard errors to either side; a pointwise interval has about 2."""
    n_units: int


def simultaneous_band(
    curves: ArrayLike,
    prompts: Ids | None = None,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = 2000,
) -> Band | Undefined:
    """Put a simultaneous confidence band around a mean curve, by bootstrap of max-t.

    Args:
        curves: (N, T), a curve each, in any unit.
        prompts: What each curve belongs to (a prompt or a seed), which is what is resampled;
            each curve by itself if not given.
        rng: Draws whole units.
        level: Chance that the band covers the true curve at all T steps, in (0, 1).
        resamples: Bootstrap draws.

    Returns:
        The band, of zero width where no unit ever differs (as at D(sigma_0) = 0), or
        ``Undefined`` with a single unit.

    Raises:
        ValueError: ``curves`` is not (N, T), holds a value that is not finite, or ids do not
            fit.

    References:
        Romano and Wolf 2005, Exact and approximate stepdown methods (bootstrap of the maximum
        of studentised deviations).
    """
    found, level = finite(curves, "curves", ndim=2), fraction(level, "level")
    codes = clusters(range(len(found)) if prompts is None else prompts, len(found))
    units = np.zeros((codes.max() + 1, found.shape[1]))
    np.add.at(units, codes, found)
    units /= np.bincount(codes)[:, None]
    many = len(units)
    if many < 2:
        return Undefined("a band needs two prompts or seeds, got one")
    mean = units.mean(axis=0)
    errors = np.array([standard_error(column) for column in units.T])
    moving = errors > 0
    critical = 0.0
    if moving.any():
        maxima = _max_t(units[:, moving], rng, resamples)
        critical = float(np.quantile(maxima, level))
        critical = max(critical, t_critical(level, many))  # few units: draws repeat themselves
    return Band(mean, mean - critical * errors, mean + critical * errors, critical, many)


def _max_t(
    units: Float[np.ndarray, "unit step"], rng: np.random.Generator, resamples: int
) -> Float[np.ndarray, " draw"]:
    """Largest studentised deviation of each bootstrap draw from the mean."""
    many, mean = len(units), units.mean(axis=0)
    weights = rng.multinomial(many, np.full(many, 1 / many), size=resamples) / many
    means = weights @ units
    spread = np.maximum(weights @ (units - mean) ** 2 - (means - mean) ** 2, 0)
    errors = np.sqrt(spread / (many - 1))
    still = errors <= 1e-9 * units.std(axis=0)  # a draw of one unit only: no t value
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(still, 0.0, np.abs(means - mean) / errors)
    maxima: Float[np.ndarray, " draw"] = t.max(axis=1)[~still.all(axis=1)]
    return maxima


def split_prompts(
    prompts: Ids, *, rng: np.random.Generator, share: float = 0.5
) -> Bool[np.ndarray, " item"]:
    """Mark the items whose prompt is for choosing; the others are for reporting.

    Args:
        prompts: The prompt id of each item; a prompt's items stay together.
        rng: Draws the split.
        share: Share of prompts for choosing, in (0, 1); at least one lies on each side.

    Returns:
        True for choosing.

    Raises:
        ValueError: Fewer than two prompts, or a share outside (0, 1).
    """
    codes = clusters(prompts, len(prompts))
    many = int(codes.max(initial=-1)) + 1
    if many < 2:
        raise ValueError(f"a split needs two prompts, got {many}")
    count = min(max(round(fraction(share, "share") * many), 1), many - 1)
    chosen = np.zeros(many, dtype=bool)
    chosen[rng.permutation(many)[:count]] = True
    marks: Bool[np.ndarray, " item"] = chosen[codes]
    return marks


@dataclass(frozen=True, slots=True)
class Selection:
    """A setting chosen on some prompts, with its result on others."""

    chosen: int
    """Row of the best mean on the choosing prompts."""
    report: Interval | Undefined
    """Its mean over the other prompts, with Student's interval: the number to quote."""
    choosing_mean: float
    """Its mean where it was chosen: too high on average, never the number to quote."""
    optimism: float
    """``choosing_mean`` minus the reported mean."""


def choose_and_report(
    values: ArrayLike,
    prompts: Ids,
    choosing: Sequence[bool] | Bool[np.ndarray, " item"],
    *,
    level: float = 0.95,
) -> Selection:
    """Choose the best setting, such as a lambda, on one split and report it on the other.

    Args:
        values: (L, N): result of each setting on each item, higher is better.
        prompts: The prompt id of each item.
        choosing: True where the item is for choosing, as from ``split_prompts``.
        level: Coverage, in (0, 1).

    Returns:
        The choice and its result on prompts that it has not seen.

    Raises:
        ValueError: Shapes differ, a split is empty, or a prompt lies in both.
    """
    found, level = finite(values, "values", ndim=2), fraction(level, "level")
    codes = clusters(prompts, found.shape[1])
    mask = np.asarray(choosing, dtype=bool)
    if mask.shape != codes.shape or mask.all() or not mask.any():
        raise ValueError(f"both splits hold items, got {mask.sum()} of {codes.size} for choosing")
    if np.intersect1d(codes[mask], codes[~mask]).size:
        raise ValueError("a prompt lies in one split, got one in both")
    totals = np.stack([np.bincount(codes, weights=row) for row in found])
    means = totals / np.bincount(codes)
    choice = np.zeros(means.shape[1], dtype=bool)
    choice[codes[mask]] = True
    chosen = int(means[:, choice].mean(axis=1).argmax())
    held = means[chosen, ~choice]
    before, after = float(means[chosen, choice].mean()), float(held.mean())
    if len(held) < 2:
        return Selection(chosen, Undefined("one prompt to report on"), before, before - after)
    half = t_critical(level, len(held)) * standard_error(held)
    return Selection(chosen, Interval(after, after - half, after + half), before, before - after)
