"""From an estimate at a few noise levels to curves, gains and trust on the sampler's grid."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from recast_train.credit.curves import Gain, divergence, interpolate, monotone, relative_gains
from recast_train.credit.estimators.base import ROUNDING

Array = npt.NDArray[np.float64]
_CLEAR = 2.0
"""Standard errors by which a lower bound must stand out of 0 to say anything."""
_LEAST_ERROR = 0.02
"""Keeps a point whose error is estimated near 0 from outvoting all others."""


class Measured(NamedTuple):
    """Curves of one kind of gain and how far they can be trusted."""

    curves: Array
    """(K, T+1) monotone discriminability, 0 at sigma_0; 0 throughout if not measured."""
    errors: Array
    """(K, T+1) standard errors, bootstrap over prompts."""
    gains: Array
    """(K, T) increments of ``curves``."""
    reliability: Array
    """(K,) in [0, 1]: share of the spread of the relative gains that is not noise; 0 for a
    reward that was not measured."""


def measure(
    information: npt.ArrayLike,
    replicates: npt.ArrayLike,
    probes: npt.ArrayLike,
    sigmas: npt.ArrayLike,
    *,
    mean: npt.ArrayLike,
    variance: npt.ArrayLike,
    gain: Gain = "r2",
    bound: npt.ArrayLike = False,
) -> Measured:
    """Make raw ICC monotone, convert, interpolate, difference; the replicates alike.

    A reward that was not measured has no gains and no reliability, so that it gets static
    credit: one whose variance is 0, and a lower bound that nowhere stands out of its own error
    (all of the reward would seem decided at the last step, and for certain).

    Args:
        information: (K, P) raw ICC at the probes.
        replicates: (B, K, P) of it.
        probes: (P,) noise levels, falling inside (0, 1).
        sigmas: (T+1,) the sampler's grid.
        mean: (K,) mean rewards, used by ``d2`` and ``kl``; see ``Estimate.mean``.
        variance: (K,) within-prompt variances; 0 or NaN for a reward that was not measured.
        gain: Kind of curve, see ``curves.divergence``.
        bound: (K,) or one for all, whether ``information`` is no more than a lower bound.

    Raises:
        ValueError: The rewards do not allow this kind, or a grid does not fall.
    """
    every = np.concatenate([np.asarray(information)[None], np.asarray(replicates)])
    draws, rewards = every.shape[:2]
    mu, var = (np.asarray(v, dtype=np.float64) for v in (mean, variance))
    errors = every[1:].std(axis=0) if draws > 1 else np.zeros(every.shape[1:])
    clear = (every[0] > _CLEAR * errors).any(axis=1)
    known = (var > ROUNDING * mu**2) & (clear | np.logical_not(bound))
    pooled = pooled_information(
        every.reshape(draws * rewards, -1), np.tile(errors, (draws, 1)) if draws > 1 else None
    )
    # Whatever the mean of a reward without curve, it is no reason to stop.
    mu, var = np.tile(np.where(known, mu, 1.0), draws), np.tile(np.where(known, var, 0.0), draws)
    grid = interpolate(probes, divergence(pooled, mu, var, gain), sigmas)
    curves = grid.reshape(draws, rewards, -1)
    curves[:, ~known] = 0.0
    steps = np.diff(curves, axis=2)
    return Measured(
        curves=curves[0],
        errors=curves[1:].std(axis=0) if draws > 1 else np.zeros(curves[0].shape),
        gains=np.maximum(steps[0], 0.0),  # PCHIP is monotone up to rounding
        reliability=reliability(relative_gains(np.maximum(steps, 0.0))),
    )


def pooled_information(information: npt.ArrayLike, errors: npt.ArrayLike | None = None) -> Array:
    """(K, P) raw ICC -> (K, P+2) monotone from 0 at sigma 1 to 1 at sigma 0.

    Args:
        information: (K, P) raw, may leave [0, 1].
        errors: (K, P) standard errors: a wild point must not pull its neighbours. Equal
            weights if None.
    """
    raw = np.asarray(information, dtype=np.float64)
    ends = ((0, 0), (1, 1))
    padded = np.pad(raw, ends, constant_values=((0, 0), (0.0, 1.0)))
    if errors is None:
        return monotone(padded)
    precision = 1.0 / (np.asarray(errors, dtype=np.float64) ** 2 + _LEAST_ERROR**2)
    return monotone(padded, np.pad(precision, ends, mode="edge"))


def raw_curves(information: npt.ArrayLike, probes: npt.ArrayLike, sigmas: npt.ArrayLike) -> Array:
    """(K, T+1) raw ICC drawn straight from probe to probe, for a report to show beside."""
    grid = np.asarray(sigmas, dtype=np.float64)
    raw = np.asarray(information, dtype=np.float64)
    knots = np.concatenate([[1.0], np.asarray(probes, dtype=np.float64), [0.0]])
    ends = np.pad(raw, ((0, 0), (1, 1)), constant_values=((0, 0), (0.0, 1.0)))
    steps = np.arange(len(grid), dtype=np.float64)
    places = np.interp(-knots, -grid, steps)
    return np.stack([np.interp(steps, places, row) for row in ends])


def reliability(relative: npt.ArrayLike) -> Array:
    """Share of a gain curve's deviation from flat that is not sampling noise.

    Args:
        relative: (1 + B, K, T) relative gains: of the data, then of the replicates.

    Returns:
        (K,) ``max(0, 1 - noise / spread)``; 0 for a flat curve, 1 without replicates.
    """
    every = np.asarray(relative, dtype=np.float64)
    spread = ((every[0] - 1.0) ** 2).mean(axis=1)
    noise = every[1:].var(axis=0).mean(axis=1) if len(every) > 1 else np.zeros_like(spread)
    ratio = np.divide(noise, spread, out=np.ones_like(spread), where=spread > 0)
    out: Array = np.maximum(0.0, 1.0 - ratio)
    return out


def shrink(gain: npt.ArrayLike, trust: npt.ArrayLike) -> Array:
    """Pull relative gains towards flat: ``1 + s (ghat - 1)``; flat rows are static credit.

    Args:
        gain: (K, T) >= 0.
        trust: (K,) s in [0, 1].

    Returns:
        (K, T) >= 0 with row means 1.
    """
    s = np.asarray(trust, dtype=np.float64)[:, None]
    if not ((s >= 0) & (s <= 1)).all():
        raise ValueError(f"trust must be in [0, 1], got {s[:, 0].tolist()}")
    out: Array = 1.0 + s * (relative_gains(gain) - 1.0)
    return out
