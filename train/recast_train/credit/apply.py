"""W in the loss: from raw rewards to one advantage per step and sample.

Three modes, equal when W is static (recast.md 4):

- ``pre``: mix the raw rewards with the credit, then normalise the mixture (as published;
  a reward with a larger spread owns more than its budget);
- ``advantage``: normalise each reward, then mix, so that budgets are exact;
- ``loss``: as ``advantage``, but every reward is clipped before mixing, which equals
  weighting K losses, since the DiffusionNFT loss is affine in the optimality.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Mode = Literal["pre", "advantage", "loss"]
Normaliser = Literal["group", "batch"]
Array = npt.NDArray[np.float64]

MODES: tuple[Mode, ...] = ("pre", "advantage", "loss")


class _Groups(NamedTuple):
    """Samples sorted by prompt, so that sums over a group are sums over a slice."""

    order: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]
    places: npt.NDArray[np.intp]

    def sums(self, values: Array) -> Array:
        """Sum over each group's samples, (..., N) -> (..., groups)."""
        # reduceat adds a row at a time, whatever the other rows hold: a BLAS product would
        # round differently with T, and static credit must equal the plain sum bit for bit.
        return np.add.reduceat(np.ascontiguousarray(values[..., self.order]), self.starts, axis=-1)


def step_coefficients(
    weights: npt.ArrayLike,
    *,
    budgets: npt.ArrayLike | None = None,
    density: npt.ArrayLike | None = None,
) -> Array:
    """What multiplies each reward at each step.

    Args:
        weights: (K, T) credit W, column 0 the noisiest step.
        budgets: (K,) row sums of W. If given, a W that is exactly ``budgets / T`` yields
            exactly ``budgets``, which ``T * (budgets / T)`` does not in floating point.
        density: (T,) how often each step is trained on, summing to 1; uniform if None.

    Returns:
        (K, T) ``W / density``, that is ``T * W`` for uniform training.

    Raises:
        ValueError: W is not a finite non-negative matrix, or the other shapes do not fit.
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 2 or not np.isfinite(w).all() or (w < 0).any():
        raise ValueError(f"weights must be a finite non-negative (K, T) matrix, got {w.shape}")
    if density is not None:
        share = np.asarray(density, dtype=np.float64)
        if share.shape != (w.shape[1],) or not (share > 0).all() or abs(share.sum() - 1) > 1e-6:
            raise ValueError(f"density must be ({w.shape[1]},), > 0, with sum 1, got {share}")
        by_density: Array = w / share
        return by_density
    if budgets is not None:
        share = np.asarray(budgets, dtype=np.float64)
        if share.shape != (w.shape[0],):
            raise ValueError(f"budgets must be ({w.shape[0]},), got shape {share.shape}")
        if np.array_equal(w, np.repeat((share / w.shape[1])[:, None], w.shape[1], axis=1)):
            return np.repeat(share[:, None], w.shape[1], axis=1)
    scaled: Array = w * w.shape[1]
    return scaled


def normalise(
    rewards: npt.ArrayLike,
    groups: npt.ArrayLike,
    *,
    eps: float = 1e-6,
    normaliser: Normaliser = "group",
) -> Array:
    """Centre on the prompt group's mean, divide by a population standard deviation.

    Args:
        rewards: (..., N) values, NaN where a reward failed.
        groups: (N,) integer prompt group of each sample.
        eps: Least divisor, in the reward's unit.
        normaliser: Whose standard deviation: the sample's group (GRPO) or all N samples
            (DiffusionNFT's default, Zheng et al. 2025, arXiv 2509.16117).

    Returns:
        (..., N) float64; 0 where the reward failed, so that it asks for nothing there.
    """
    values = np.asarray(rewards, dtype=np.float64)
    labels = _groups(groups, values.shape[-1])
    if not eps > 0:
        raise ValueError(f"eps must be > 0, got {eps}")
    there = ~np.isnan(values)
    if np.isinf(values).any():
        raise ValueError("rewards must be finite (NaN marks a failed one), got infinity")
    filled = np.where(there, values, 0.0)
    count = labels.sums(there.astype(np.float64))
    mean = labels.sums(filled) / np.maximum(count, 1.0)
    centred = np.where(there, filled - mean[..., labels.places], 0.0)
    if normaliser == "group":
        spread = np.sqrt(labels.sums(centred**2) / np.maximum(count, 1.0))[..., labels.places]
    elif normaliser == "batch":
        total = np.maximum(there.sum(-1, keepdims=True), 1)
        off = np.where(there, filled - filled.sum(-1, keepdims=True) / total, 0.0)
        spread = np.sqrt((off**2).sum(-1, keepdims=True) / total)
    else:
        raise ValueError(f"normaliser must be 'group' or 'batch', got {normaliser!r}")
    out: Array = centred / np.maximum(spread, eps)
    return out


def step_advantages(
    rewards: npt.ArrayLike,
    groups: npt.ArrayLike,
    weights: npt.ArrayLike,
    *,
    mode: Mode = "advantage",
    eps: float = 1e-6,
    rms_match: bool = False,
    normaliser: Normaliser = "group",
    clip: float | None = None,
    budgets: npt.ArrayLike | None = None,
    density: npt.ArrayLike | None = None,
    column_mass: npt.ArrayLike | None = None,
) -> Array:
    """Mix K rewards into one advantage per step and sample.

    Args:
        rewards: (K, N) raw values, higher is better, NaN where a reward failed.
        groups: (N,) integer prompt group of each sample.
        weights: (K, T) credit W; what multiplies the loss at step j is ``T * W[:, j]``.
        mode: ``pre``, ``advantage`` or ``loss``, see the module.
        eps: Least standard deviation to divide by.
        rms_match: Scale everything by the one constant that gives the advantages the root
            mean square they would have under static W, so that a more peaked W is not a
            hidden learning rate. Without effect in ``pre``, which normalises every step.
        normaliser: ``group`` or ``batch`` standard deviation.
        clip: Bound on the absolute advantage (5 in DiffusionNFT), None for none.
        budgets: (K,) row sums of W, see ``step_coefficients``.
        density: (T,) training density of the steps, see ``step_coefficients``.
        column_mass: (T,) column sums of static W, for ``rms_match``; equal if None.

    Returns:
        (T, N) float64. A sample whose reward failed gets nothing from that reward; in
        ``pre``, where the mixture is then unknown, its whole advantage is 0. A reward that a
        whole group lacks, as it does not apply to the prompt, drops out of that mixture.

    Raises:
        ValueError: Shapes do not fit, an unknown mode, W negative or not finite.

    References:
        Chen et al. 2026, arXiv 2609.13425 (``pre`` and ``loss``; ``advantage`` is ours).
    """
    parts = _parts(rewards, weights, mode, clip)
    coefficients = step_coefficients(weights, budgets=budgets, density=density)
    if mode == "pre":
        active = coefficients.max(axis=1) > 0
        mixture = _mix(coefficients[active], _level(parts[active], groups))
        mixed = normalise(mixture, groups, eps=eps, normaliser=normaliser)
        return mixed if clip is None else np.clip(mixed, -clip, clip)
    each = normalise(parts, groups, eps=eps, normaliser=normaliser)
    if mode == "loss" and clip is not None:
        each = np.clip(each, -clip, clip)
    mixed = _mix(coefficients, each)
    if rms_match:
        mixed *= rms_constant(each, coefficients, column_mass=column_mass)
    return mixed if clip is None else np.clip(mixed, -clip, clip)


def reward_step_advantages(
    rewards: npt.ArrayLike,
    groups: npt.ArrayLike,
    weights: npt.ArrayLike,
    *,
    mode: Mode = "advantage",
    eps: float = 1e-6,
    rms_match: bool = False,
    normaliser: Normaliser = "group",
    clip: float | None = None,
    budgets: npt.ArrayLike | None = None,
    density: npt.ArrayLike | None = None,
    column_mass: npt.ArrayLike | None = None,
) -> Array:
    """Per-reward advantages for an aggregator that weighs the rewards itself (MARBLE).

    The credit enters as the multiplier ``M[k, j] = T W[k, j] / lambda_k``, whose mean over
    the steps is 1: mixing the result with ``lambda`` gives ``step_advantages`` before its
    last clip. Arguments as there; ``pre`` has no per-reward parts and is refused.

    Returns:
        (K, T, N) float64; zeros for a reward without budget.
    """
    if mode == "pre":
        raise ValueError("mode 'pre' mixes before normalising: it has no per-reward advantages")
    parts = _parts(rewards, weights, mode, clip)
    coefficients = step_coefficients(weights, budgets=budgets, density=density)
    each = normalise(parts, groups, eps=eps, normaliser=normaliser)
    if mode == "loss" and clip is not None:
        each = np.clip(each, -clip, clip)
    share = np.asarray(weights, dtype=np.float64).sum(axis=1) if budgets is None else budgets
    multiplier = coefficients / np.maximum(np.asarray(share, np.float64), 1e-300)[:, None]
    multiplier[coefficients.max(axis=1) == 0] = 0.0
    out: Array = multiplier[:, :, None] * each[:, None, :]
    if rms_match:
        out *= rms_constant(each, coefficients, column_mass=column_mass)
    return out


def rms_constant(
    advantages: npt.ArrayLike,
    coefficients: npt.ArrayLike,
    *,
    column_mass: npt.ArrayLike | None = None,
) -> float:
    """Root mean square of the static mixture over that of the credited one.

    ``sqrt(sum_j s_j' C s_j / sum_j w_j' C w_j)`` with ``w_j`` the coefficients of step j,
    ``s_j`` those of static W and C the rewards' second moments. One number for all steps
    keeps the shape of W and the ratio of the budgets.

    Args:
        advantages: (K, N) normalised rewards.
        coefficients: (K, T) from ``step_coefficients``.
        column_mass: (T,) >= 0, column sums of static W: a method's own weighting of its
            steps is no loudness of the credit. Equal if None, so that columns which a
            credit chose itself are divided out.

    Returns:
        The factor; exactly 1 if W is static or nothing varies.

    Raises:
        ValueError: ``column_mass`` does not fit the steps.
    """
    a = np.asarray(advantages, dtype=np.float64)
    c = np.asarray(coefficients, dtype=np.float64)
    static = c.mean(axis=1)
    share = np.ones(c.shape[1])
    if column_mass is not None:
        mass = np.asarray(column_mass, dtype=np.float64)
        if mass.shape != share.shape or not (mass >= 0).all() or not mass.sum() > 0:
            raise ValueError(f"column_mass must be ({len(share)},), >= 0 and not all 0, got {mass}")
        share = mass / mass.mean()
    if np.allclose(c, np.outer(static, share), rtol=1e-12, atol=0.0):
        return 1.0
    second = a @ a.T / a.shape[1]
    credited = float(np.einsum("kt,kl,lt->", c, second, c)) / c.shape[1]
    plain = float(static @ second @ static) * float((share**2).mean())
    return float(np.sqrt(plain / credited)) if credited > 0 and plain > 0 else 1.0


def _parts(rewards: npt.ArrayLike, weights: npt.ArrayLike, mode: Any, clip: float | None) -> Array:
    values = np.asarray(rewards, dtype=np.float64)
    rows = np.asarray(weights).shape[0] if np.ndim(weights) == 2 else -1
    if values.ndim != 2 or values.shape[0] != rows:
        raise ValueError(
            f"rewards (K, N) and weights (K, T) must share K, got {values.shape} and "
            f"{np.shape(weights)}"
        )
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    if clip is not None and not clip > 0:
        raise ValueError(f"clip must be > 0 or None, got {clip}")
    return values


def _mix(coefficients: Array, values: Array) -> Array:
    """Sum over rewards in their order, one addition at a time (see ``_Groups.sums``)."""
    out = np.zeros((coefficients.shape[1], values.shape[1]))
    for row, value in zip(coefficients, values, strict=True):
        out += row[:, None] * value[None, :]
    return out


def _level(values: Array, groups: npt.ArrayLike) -> Array:
    """Where a whole group lacks a reward, (K, N) values hold the reward's mean: no preference."""
    labels = _groups(groups, values.shape[1])
    there = ~np.isnan(values)
    lacking = (labels.sums(there.astype(np.float64)) == 0)[:, labels.places]
    count = np.maximum(there.sum(axis=1, keepdims=True), 1)
    mean = np.where(there, values, 0.0).sum(axis=1, keepdims=True) / count
    return np.where(lacking, mean, values)


def _groups(groups: npt.ArrayLike, samples: int) -> _Groups:
    labels = np.asarray(groups)
    if labels.shape != (samples,) or samples == 0:
        raise ValueError(f"groups must name the group of each of {samples} > 0 samples")
    _, index = np.unique(labels, return_inverse=True)
    order = np.argsort(index, kind="stable")
    starts = np.searchsorted(index[order], np.arange(index.max() + 1))
    return _Groups(order, starts, index)
