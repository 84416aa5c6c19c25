"""Discriminability curves and their gains.

For a reward r >= 0 the tilted law ``pi+(x_0) ~ r(x_0) pi(x_0)`` and the policy's own law,
both noised to sigma, have the density ratio ``rho = E[r | x_t] / E[r]``. A curve says how
far apart they are at each sigma: 0 at pure noise, and never falling towards clean, since
noising only destroys information (data processing). What a step adds is its gain.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.interpolate import PchipInterpolator
from scipy.optimize import isotonic_regression
from scipy.special import digamma, logsumexp, xlogy

Array = npt.NDArray[np.float64]
Gain = Literal["r2", "d2", "kl"]
Pooling = Literal["ratio", "log_of_mean", "mean_of_logs"]
GAINS: tuple[Gain, ...] = ("r2", "d2", "kl")


def discriminability(ratios: npt.ArrayLike, alpha: float = 2.0) -> Array:
    """Renyi divergence between the tilted and the current policy at each step.

    ``D = log(mean rho^alpha) / (alpha - 1)``, and ``mean rho log rho`` at alpha = 1.

    Args:
        ratios: (N, T) ``E[r | x_t] / E[r | prompt]`` >= 0 of N observations at the
            destinations sigma_1 .. sigma_T.
        alpha: Order > 0; 1 is the KL divergence.

    Returns:
        (T,) float64 in nats, over all observations pooled (the log of the mean).

    Raises:
        ValueError: A ratio is negative or not finite, alpha <= 0, or all ratios of a step
            are 0, which no ratio of mean 1 can be.

    References:
        Chen et al. 2026, arXiv 2609.13425 (alpha = 2); van Erven and Harremoes 2014,
        arXiv 1206.2459.
    """
    rho = np.asarray(ratios, dtype=np.float64)
    if rho.ndim != 2 or rho.size == 0:
        raise ValueError(f"ratios must be (N, T) with N, T >= 1, got shape {rho.shape}")
    if not np.isfinite(rho).all() or (rho < 0).any():
        raise ValueError(f"ratios must be finite and >= 0, got {rho.min()} .. {rho.max()}")
    if not (np.isfinite(alpha) and alpha > 0):
        raise ValueError(f"alpha must be finite and > 0, got {alpha}")
    empty = ~rho.any(axis=0)
    if empty.any():
        raise ValueError(
            f"all ratios of step(s) {np.flatnonzero(empty)} are 0, but their mean is 1"
        )
    if abs(alpha - 1.0) < 1e-9:
        out: Array = xlogy(rho, rho).mean(axis=0)
        return out
    with np.errstate(divide="ignore"):
        logs = np.log(rho)
    moment: Array = logsumexp(alpha * logs, axis=0) - np.log(len(rho))
    return moment / (alpha - 1.0)


def monotone(curves: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Array:
    """Nearest curves that never fall and keep both ends.

    Isotonic regression, then a clamp to the ends: together the least-squares fit among
    monotone curves with these ends. A curve whose end lies below its start becomes flat.

    Args:
        curves: (K, P) along falling sigma; NaN is filled in linearly from its neighbours, a
            curve of NaN alone becomes 0.
        weights: (K, P) > 0 precision of each point; equal if None.

    Returns:
        (K, P) float64.

    Raises:
        ValueError: Not a matrix, or infinite.
    """
    values = np.asarray(curves, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 1:
        raise ValueError(f"curves must be a (K, T+1) matrix, got shape {values.shape}")
    if np.isinf(values).any():
        raise ValueError("curves must be finite (NaN where not measured), got infinity")
    precision = None if weights is None else np.asarray(weights, dtype=np.float64)
    out = np.empty_like(values)
    for k, row in enumerate(values):
        filled = _fill(row)
        pooled = isotonic_regression(filled, weights=None if precision is None else precision[k]).x
        out[k] = np.clip(pooled, filled[0], max(filled[0], filled[-1]))
    return out


def gains(curves: npt.ArrayLike) -> Array:
    """What each step adds to discriminability.

    Args:
        curves: (K, T+1) on sigma_0 = 1 .. sigma_T = 0. Noisy curves are made monotone first
            (``monotone``), since clipping negative differences would inflate the total.

    Returns:
        (K, T) float64 >= 0; each row sums to the curve's last value minus its first (or to
        0 if that is negative).

    Raises:
        ValueError: Not a matrix with two columns or more, or infinite.
    """
    values = np.asarray(curves, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 2:
        raise ValueError(f"curves must be (K, T+1) with T >= 1, got shape {values.shape}")
    out: Array = np.diff(monotone(values), axis=1)
    return out


def published_gains(curves: npt.ArrayLike) -> Array:
    """Gains as published: differences clipped at 0, without pooling.

    Args:
        curves: (K, T+1).

    Returns:
        (K, T) >= 0. The rows sum to more than the curve's rise wherever it is noisy.

    References:
        Chen et al. 2026, arXiv 2609.13425, official code.
    """
    values = np.asarray(curves, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 2 or not np.isfinite(values).all():
        raise ValueError(f"curves must be finite (K, T+1) with T >= 1, got shape {values.shape}")
    return np.maximum(np.diff(values, axis=1), 0.0)


def relative_gains(gain: npt.ArrayLike) -> Array:
    """``ghat``: gains over their row mean; a row without gain is 1 throughout.

    Args:
        gain: (..., T) >= 0.

    Returns:
        (..., T) float64 with mean 1.
    """
    g = np.asarray(gain, dtype=np.float64)
    mean = g.mean(axis=-1, keepdims=True)
    out: Array = np.divide(g, mean, out=np.ones_like(g), where=mean > 0)
    return out


def divergence(
    information: npt.ArrayLike, mean: npt.ArrayLike, variance: npt.ArrayLike, kind: Gain
) -> Array:
    """Curve of one of three kinds from the share of a reward's variance that x_t explains.

    - ``r2``: the share itself; needs no more than a variance, so any unit will do;
    - ``d2``: Renyi divergence of order 2, ``log(1 + CV^2 ICC)``: exact for one prompt; of
      several, the ``ratio`` pooling of ``pool_divergence`` if ``mean`` is ``Estimate.mean``;
    - ``kl``: KL of the Beta law with this mean and variance: exact for rewards in {0, 1} of one
      prompt at sigma = 0, else an approximation: two moments do not fix a KL.

    Args:
        information: (K, P) ``ICC = Var(E[r | x_t]) / Var(r)`` within prompts, in [0, 1].
        mean: (K,) mean reward, see ``Estimate.mean``; > 0 unless ``r2``, at most 1 for ``kl``.
        variance: (K,) within-prompt variance of the reward.
        kind: ``r2``, ``d2`` or ``kl``.

    Returns:
        (K, P) float64, 0 where there is no information.

    Raises:
        ValueError: The mean does not allow this kind.
    """
    icc = np.asarray(information, dtype=np.float64)
    mu = np.asarray(mean, dtype=np.float64)[:, None]
    var = np.asarray(variance, dtype=np.float64)[:, None]
    if kind == "r2":
        return icc.copy()
    if kind not in GAINS:
        raise ValueError(f"gain must be one of {', '.join(GAINS)}, got {kind!r}")
    if not (mu > 0).all():
        raise ValueError(f"{kind} gains need rewards with mean > 0, got {_few(mu[~(mu > 0)])}")
    spread = np.maximum(icc, 0.0) * var
    if kind == "d2":
        out: Array = np.log1p(spread / mu**2)
        return out
    if not (mu <= 1).all():
        raise ValueError(f"kl gains need rewards in [0, 1], got means {_few(mu[mu > 1])}")
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.where(spread > 0, mu * (1.0 - mu) / spread - 1.0, np.inf)
        a = np.maximum(size, 0.0) * mu
        kl = digamma(a + 1.0) - digamma(np.maximum(size, 0.0) + 1.0) - np.log(mu)
    return np.where(np.isfinite(size), np.maximum(kl, 0.0), 0.0)


def pool_divergence(
    explained: npt.ArrayLike, mean: npt.ArrayLike, variance: npt.ArrayLike, pooling: Pooling
) -> Array:
    """One order-2 curve from curves of single prompts, for comparison.

    ``divergence``, and so a recipe's ``gain: d2``, is ``ratio``; no switch selects the others,
    which need curves of single prompts that a few images cannot give.

    - ``ratio``: ``log(1 + CV^2 ICC)`` with ICC and CV from sums over prompts: robust;
    - ``log_of_mean``: ``log mean_c(1 + C_c / mean_c^2)`` as published: the divergence of the
      joint laws of prompt and image, which the hardest prompts dominate;
    - ``mean_of_logs``: the mean of the prompts' divergences.

    All three are monotone along falling sigma if the prompts' curves are.

    Args:
        explained: (C, P) ``Var(E[r | x_t, c])`` of each prompt.
        mean: (C,) mean reward of each prompt, > 0.
        variance: (C,) variance of the reward within each prompt.
        pooling: Which.

    Returns:
        (P,) float64.

    Raises:
        ValueError: A mean is not positive, or the pooling is unknown.
    """
    parts = np.maximum(np.asarray(explained, dtype=np.float64), 0.0)
    mu, var = np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    if not (mu > 0).all():
        raise ValueError(f"order-2 divergence needs prompt means > 0, got {mu.min()}")
    relative = parts / mu[:, None] ** 2
    if pooling == "log_of_mean":
        out: Array = np.log1p(relative.mean(axis=0))
    elif pooling == "mean_of_logs":
        out = np.log1p(relative).mean(axis=0)
    elif pooling == "ratio":
        icc = parts.sum(axis=0) / max(float(var.sum()), 1e-300)
        out = np.log1p(icc * var.sum() / (mu**2).sum())
    else:
        raise ValueError(f"pooling must be ratio, log_of_mean or mean_of_logs, got {pooling!r}")
    return out


def interpolate(probes: npt.ArrayLike, values: npt.ArrayLike, sigmas: npt.ArrayLike) -> Array:
    """Monotone curves on the sampler's grid from a few probed noise levels.

    Shape-preserving cubic (PCHIP) in the step index, so it neither overshoots nor falls.

    Args:
        probes: (P,) strictly falling noise levels in (0, 1).
        values: (K, P+2) monotone values: at sigma 1, at the probes, at sigma 0.
        sigmas: (T+1,) strictly falling grid from 1 to 0.

    Returns:
        (K, T+1) float64; equal to ``values`` where the grid meets a probe.

    Raises:
        ValueError: A grid does not fall, or shapes do not fit.
    """
    grid = np.asarray(sigmas, dtype=np.float64)
    knots = np.concatenate(([grid[0]], np.asarray(probes, dtype=np.float64), [grid[-1]]))
    heights = np.asarray(values, dtype=np.float64)
    if not (np.diff(grid) < 0).all() or not (np.diff(knots) < 0).all():
        raise ValueError(
            f"sigmas and probes must fall strictly and probes lie inside ({grid[-1]}, {grid[0]}), "
            f"got {grid.tolist()} and {np.asarray(probes).tolist()}"
        )
    if heights.ndim != 2 or heights.shape[1] != len(knots):
        raise ValueError(f"values must be (K, {len(knots)}), got shape {heights.shape}")
    steps = np.arange(len(grid), dtype=np.float64)
    places = np.interp(-knots, -grid, steps)
    if len(grid) == 2:
        return heights[:, [0, -1]]
    out: Array = PchipInterpolator(places, heights, axis=1)(steps)
    return out


def _few(values: Array) -> str:
    """Different values, for a message."""
    return ", ".join(f"{value:.4g}" for value in np.unique(values))


def _fill(row: Array) -> Array:
    there = ~np.isnan(row)
    if there.all():
        return row
    if not there.any():
        return np.zeros_like(row)
    places = np.arange(len(row))
    out: Array = np.interp(places, places[there], row[there])
    return out
