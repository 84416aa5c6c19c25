"""MARBLE's balance: unit gradients, their min-norm point, and the mean norm put back."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from recast_train.gradients.min_norm import checked_gram, min_norm_weights

SIGNAL_FLOOR = 1e-12
"""A gradient whose norm is below this share of the largest one carries no signal."""


class Balance(NamedTuple):
    """How K gradients were balanced; all float64, full length K, zeros where inactive."""

    alpha: Float[np.ndarray, " rewards"]
    """On the simplex, over normalised gradients; zeros if no reward is active."""
    weights: Float[np.ndarray, " rewards"]
    """Over the gradients as they are: alpha_k * mean norm / norm_k."""
    worst_cosine: float
    """Least cosine of the combined direction with an active gradient; 0 if none is."""


def balance(gram: ArrayLike, active: ArrayLike | None = None) -> Balance:
    """Find the direction that is equally good for every reward, whatever their scales.

    Args:
        gram: (K, K) inner products of the per-reward gradients.
        active: (K,) bool; False drops a reward that has no signal in this batch. Zero
            gradients are dropped in any case: on-policy, a constant reward's is exactly 0.

    Returns:
        Coefficients on normalised and on raw gradients.

    Raises:
        ValueError: Not a Gram matrix, or ``active`` has another length.

    References:
        MARBLE 2026, arXiv:2605.06507, Eq. 5-7. The published text names no solver and no
        guard for signal-less rewards; both are ours.
    """
    matrix = checked_gram(gram)
    norms = np.sqrt(np.maximum(matrix.diagonal(), 0.0))
    used = _used(norms, active)
    alpha, weights = np.zeros(len(matrix)), np.zeros(len(matrix))
    if not used.any():
        return Balance(alpha, weights, 0.0)
    unit = cosines(matrix[np.ix_(used, used)])
    alpha[used] = min_norm_weights(unit)
    weights[used] = alpha[used] * norms[used].mean() / norms[used]
    return Balance(alpha, weights, worst_cosine(matrix, weights, used))


def cosines(gram: ArrayLike) -> Float[np.ndarray, "rewards rewards"]:
    """Cosines between gradients; 0 beside a zero gradient, 1 on the rest of the diagonal.

    Args:
        gram: (K, K) inner products.

    Returns:
        (K, K) float64 in [-1, 1].

    Raises:
        ValueError: Not a Gram matrix.
    """
    matrix = checked_gram(gram)
    norms = np.sqrt(np.maximum(matrix.diagonal(), 0.0))
    safe = np.where(norms > 0.0, norms, 1.0)
    unit: np.ndarray = np.clip(matrix / safe[:, None] / safe[None, :], -1.0, 1.0)
    np.fill_diagonal(unit, np.where(norms > 0.0, 1.0, 0.0))
    return unit


def worst_cosine(gram: ArrayLike, weights: ArrayLike, active: ArrayLike | None = None) -> float:
    """Least cosine between ``sum_k weights_k g_k`` and an active gradient.

    Args:
        gram: (K, K) inner products.
        weights: (K,) of the direction.
        active: (K,) bool, as in :func:`balance`.

    Returns:
        In [-1, 1]; 0 if the direction is zero or no gradient is active.
    """
    matrix, chosen = checked_gram(gram), np.asarray(weights, dtype=np.float64)
    norms = np.sqrt(np.maximum(matrix.diagonal(), 0.0))
    used = _used(norms, active)
    length = float(np.sqrt(max(float(chosen @ matrix @ chosen), 0.0)))
    if not used.any() or length <= SIGNAL_FLOOR * float((np.abs(chosen) * norms).max()):
        return 0.0
    return float(((matrix @ chosen)[used] / (norms[used] * length)).min())


def _used(norms: np.ndarray, active: ArrayLike | None) -> Bool[np.ndarray, " rewards"]:
    wanted = np.ones(len(norms), bool) if active is None else np.asarray(active, dtype=bool)
    if wanted.shape != norms.shape:
        raise ValueError(f"active has shape {wanted.shape}, the Gram matrix K = {len(norms)}")
    used: np.ndarray = wanted & (norms > SIGNAL_FLOOR * norms.max()) & (norms > 0.0)
    return used
