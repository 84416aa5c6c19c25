"""One backward instead of K: weights on gradients become weights on advantages.

For a loss affine in the advantage, as DiffusionNFT's, and any weights w with sum s,
``sum_k w_k grad l(A_k) = s grad l(sum_k w_k A_k / s)``: the offset of the optimality map and
the pull to the old policy do not depend on A and are counted s times on both sides. MARBLE's
Proposition 1 is s = 1. A clipped advantage or ratio breaks it for the samples that it clips.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike


class Mixture(NamedTuple):
    """What an ordinary step needs."""

    shares: Float[np.ndarray, " rewards"]
    """Sum to 1; they mix the advantages."""
    scale: float
    """Multiplies the loss of the mixture; 0 if the gradients cancel."""


def mixture(weights: ArrayLike) -> Mixture:
    """Split weights on K gradients into a mixture of advantages and a factor on the loss.

    Args:
        weights: (K,) finite. Their sum is positive, or all are zero.

    Returns:
        Shares ``w / s`` and the scale s; equal shares and 0 if all are zero.

    Raises:
        ValueError: A weight is not finite, or the sum is not positive though some are not 0.

    References:
        MARBLE 2026, arXiv:2605.06507, Proposition 1, for s = 1; the factor s is ours.
    """
    values = np.asarray(weights, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise ValueError(f"weights are (K,) finite numbers, got {values}")
    if not values.any():
        return Mixture(np.full(len(values), 1.0 / len(values)), 0.0)
    total = float(values.sum())
    if total <= 0.0:
        raise ValueError(f"weights must have a positive sum to be amortised, got {values}")
    return Mixture(values / total, total)
