"""What estimators take and give, and the sums over prompts that they share."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
ROUNDING = 1e-12
"""Variance within prompts, as a share of the mean square, below which it is rounding."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Scored samples and what is known of them at P noise levels.

    The same noise should be used at all levels of a sample: differences along a curve are
    then far less noisy. For that very reason features of two levels must never meet in one
    regression: x_s and x_t made with the same noise give x_0 away.
    """

    rewards: Array
    """(K, N) values, NaN where a reward failed."""
    prompts: npt.NDArray[np.intp]
    """(N,) integer prompt of each sample."""
    sigmas: Array
    """(P,) noise levels, strictly falling inside (0, 1)."""
    x0_rewards: Array | None = None
    """(P, K, N) rewards of the decoded x_0 estimates; NaN where one failed."""
    sharp_rewards: Array | None = None
    """(P, K, N) rewards of a few ODE steps from x_t: sharp where the x_0 estimate is a blur, so
    that a letter can be read. A function of x_t, hence a feature, and no draw to pair with."""
    features: Array | None = None
    """(P, N, F) any other function of x_t: pooled latent statistics."""
    completions: Array | None = None
    """(P, K, N) rewards of one stochastic completion of each x_t."""
    same_noise: bool = True
    """The completions start from the very x_t that the features describe."""

    @property
    def predictable(self) -> bool:
        """Whether there is anything to regress on."""
        return any(v is not None for v in (self.x0_rewards, self.sharp_rewards, self.features))

    def __post_init__(self) -> None:
        k, n = _shape(self.rewards, 2, "rewards (K, N)")
        p = len(self.sigmas)
        if np.shape(self.prompts) != (n,):
            raise ValueError(f"prompts must be ({n},), got {np.shape(self.prompts)}")
        if np.ndim(self.sigmas) != 1 or not (np.diff(self.sigmas) < 0).all():
            raise ValueError(f"sigmas must fall strictly, got {np.asarray(self.sigmas).tolist()}")
        if p == 0 or not (np.min(self.sigmas) > 0 and np.max(self.sigmas) < 1):
            raise ValueError(f"probed sigmas must lie in (0, 1), got {list(self.sigmas)}")
        for name in ("x0_rewards", "sharp_rewards", "completions"):
            value = getattr(self, name)
            if value is not None and np.shape(value) != (p, k, n):
                raise ValueError(f"{name} must be (P, K, N) = {(p, k, n)}, got {np.shape(value)}")
        if self.features is not None and np.shape(self.features)[:2] != (p, n):
            raise ValueError(f"features must be ({p}, {n}, F), got {np.shape(self.features)}")
        for name in ("rewards", "x0_rewards", "sharp_rewards", "features", "completions"):
            value = getattr(self, name)
            if value is not None and np.isinf(value).any():
                raise ValueError(f"{name} must be finite (NaN marks a failure), got infinity")


@dataclass(frozen=True, slots=True)
class Estimate:
    """ICC of each reward at the probed noise levels; raw, so it may leave [0, 1] or fall."""

    name: str
    sigmas: Array
    """(P,)"""
    information: Array
    """(K, P); 0 at sigma 1 and 1 at sigma 0 by definition, which are not listed. 0 throughout
    for a reward that is not ``measured``."""
    replicates: Array
    """(B, K, P) bootstrap over prompts, widened for their small number."""
    mean: Array
    """(K,) root mean square over prompts of their mean rewards; the plain mean if that is not
    positive. With it ``variance / mean^2`` is what a ratio to the prompt's own mean varies by,
    whatever the prompts' difficulty."""
    variance: Array
    """(K,) variance of the reward within prompts; 0 if it is not ``measured``."""
    biased: bool = False
    """Known to be wrong, kept for comparison."""

    @property
    def errors(self) -> Array:
        """(K, P) standard errors."""
        out: Array = self.replicates.std(axis=0)
        return out

    @property
    def measured(self) -> npt.NDArray[np.bool_]:
        """(K,) whether two prompts or more have samples that can be compared, and that differ."""
        out: npt.NDArray[np.bool_] = self.variance > 0
        return out


class Sums(NamedTuple):
    """Per-prompt sums of products of centred values, and their degrees of freedom."""

    total: Array
    """(C, ...)"""
    freedom: Array
    """(C, ...)"""

    def mean(self, weights: Array) -> Array:
        """Pooled value under prompt weights (B, C) -> (B, ...); 0 if nothing was measured."""
        top = np.tensordot(weights, self.total, 1)
        low = np.tensordot(weights, self.freedom, 1)
        out: Array = np.divide(top, low, out=np.zeros_like(top), where=low > 0)
        return out

    @property
    def enough(self) -> npt.NDArray[np.bool_]:
        """(...) whether two prompts or more say something: one alone has no standard error."""
        out: npt.NDArray[np.bool_] = (self.freedom > 0).sum(axis=0) >= 2
        return out


def center(values: Array, cells: npt.NDArray[np.intp]) -> Array:
    """Subtract each cell's mean over its finite values; NaN stays NaN.

    Args:
        values: (..., N).
        cells: (N,) integers from 0.
    """
    there = ~np.isnan(values)
    count = cell_sums(there.astype(np.float64), cells)
    total = cell_sums(np.where(there, values, 0.0), cells)
    mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    out: Array = values - mean[..., cells]
    return out


def cell_sums(values: Array, cells: npt.NDArray[np.intp]) -> Array:
    """(..., N) -> (..., cells): sum over the samples of each cell."""
    order = np.argsort(cells, kind="stable")
    starts = np.searchsorted(cells[order], np.arange(cells.max() + 1))
    out: Array = np.add.reduceat(values[..., order], starts, axis=-1)
    return out


def products(a: Array, b: Array, prompts: npt.NDArray[np.intp]) -> Sums:
    """Within-prompt covariance of two series as sums over each prompt.

    Both are centred on the prompt's mean over the samples that have both, which makes
    ``total / freedom`` unbiased.

    Args:
        a: (..., N), NaN where missing.
        b: (..., N).
        prompts: (N,) integers from 0.
    """
    both = ~(np.isnan(a) | np.isnan(b))
    x = center(np.where(both, a, np.nan), prompts)
    y = center(np.where(both, b, np.nan), prompts)
    return collect(np.where(both, x * y, np.nan), prompts)


def collect(values: Array, prompts: npt.NDArray[np.intp]) -> Sums:
    """Sums of (..., N) products of centred values, prompts first; n - 1 degrees each."""
    there = ~np.isnan(values)
    total = cell_sums(np.where(there, values, 0.0), prompts)
    count = cell_sums(there.astype(np.float64), prompts)
    alone = count < 2  # a single sample, centred on itself, says nothing
    total = np.where(alone, 0.0, total)
    return Sums(np.moveaxis(total, -1, 0), np.moveaxis(np.where(alone, 0.0, count - 1), -1, 0))


def prompt_index(prompts: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Any labels as integers from 0."""
    _, index = np.unique(np.asarray(prompts), return_inverse=True)
    return index.astype(np.intp)


def prompt_weights(samples: Samples, replicates: int, generator: np.random.Generator) -> Array:
    """(1 + B, C): the data as they are, then how often a bootstrap draws each prompt.

    Raises:
        ValueError: There are fewer than two prompts: nothing to draw from.
    """
    prompts = len(np.unique(samples.prompts))
    if prompts < 2:
        raise ValueError(f"standard errors over prompts need 2 prompts or more, got {prompts}")
    drawn = generator.multinomial(prompts, np.full(prompts, 1.0 / prompts), size=replicates)
    return np.vstack([np.ones((1, prompts)), drawn])


def from_parts(
    name: str,
    samples: Samples,
    parts: list[Sums],
    *,
    weights: Array,
    biased: bool = False,
    end: float = 1.0,
) -> Estimate:
    """ICC as the sum of explained (K, P) parts over the within-prompt variance.

    A level at which nothing was scored lies between its neighbours; a reward with no level at
    all, or that is constant within every prompt, was not measured.

    Args:
        name: Of the estimator.
        samples: What the parts were made from.
        parts: Each (C, K, P); their pooled means are added.
        weights: (1 + B, C) from ``prompt_weights``; estimates that will be compared share
            them, so that a difference's error is seen.
        biased: See ``Estimate``.
        end: What the parts sum to at sigma 0: 1 for an ICC, 0 for what one lacks.
    """
    own = products(samples.rewards, samples.rewards, prompt_index(samples.prompts))
    spread = own.mean(weights)
    there = ~np.isnan(samples.rewards)
    count = np.maximum(there.sum(axis=1), 1)
    least = ROUNDING * np.nansum(samples.rewards**2, axis=1) / count
    explained = sum((part.mean(weights) for part in parts), np.zeros(()))
    icc = explained / np.where(spread > least, spread, np.inf)[:, :, None]
    levels = np.logical_and.reduce([part.enough for part in parts])
    known = own.enough & (spread[0] > least) & levels.any(axis=1)
    for k in np.flatnonzero(known & ~levels.all(axis=1)):
        icc[:, k] = between(icc[:, k], levels[k], end)
    icc[:, ~known] = 0.0
    grand = np.nansum(samples.rewards, axis=1) / count
    square = np.maximum(_mean_square(samples.rewards, own, samples.prompts), grand**2)
    # A bootstrap over C prompts has variance (C - 1) / C of the true one.
    widen = np.sqrt(weights.shape[1] / (weights.shape[1] - 1))
    return Estimate(
        name=name,
        sigmas=np.asarray(samples.sigmas, dtype=np.float64),
        information=icc[0],
        replicates=icc[0] + (icc[1:] - icc[0]) * widen,
        mean=np.where(grand > 0, np.sqrt(square), grand),
        variance=np.where(known, spread[0], 0.0),
        biased=biased,
    )


def _mean_square(rewards: Array, own: Sums, prompts: npt.NDArray[np.intp]) -> Array:
    """(K,) mean over prompts of their squared mean reward, less what few images add to it."""
    cells = prompt_index(prompts)
    count = cell_sums((~np.isnan(rewards)).astype(np.float64), cells)
    mean = cell_sums(np.nan_to_num(rewards), cells) / np.maximum(count, 1.0)
    noise = own.total.T / np.maximum(own.freedom.T, 1.0) / np.maximum(count, 1.0)
    out: Array = (mean**2 - noise).sum(axis=1) / np.maximum((count > 0).sum(axis=1), 1)
    return out


def between(values: Array, there: npt.NDArray[np.bool_], end: float) -> Array:
    """Put levels that were not measured on straight lines between those that were.

    Args:
        values: (B, P) along falling sigma.
        there: (P,) which were measured.
        end: Value at sigma 0; it is 0 at sigma 1.
    """
    knots = np.concatenate([[-1], np.flatnonzero(there), [len(there)]])
    known = np.pad(values[:, there], ((0, 0), (1, 1)), constant_values=((0, 0), (0.0, end)))
    places = np.arange(len(there))
    return np.stack([np.interp(places, knots, row) for row in known])


def _shape(value: Array, rank: int, name: str) -> tuple[int, ...]:
    if np.ndim(value) != rank or np.size(value) == 0:
        raise ValueError(f"{name} must not be empty, got shape {np.shape(value)}")
    return np.shape(value)
