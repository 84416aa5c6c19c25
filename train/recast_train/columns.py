"""What normalising must not undo: how much of the training falls on each step."""

import numpy as np
import numpy.typing as npt
from torch import Tensor

_EQUAL = 1e-6
"""Relative spread of column sums that is rounding, or where a solver stopped."""


def column_shares(weights: npt.ArrayLike) -> np.ndarray:
    """Each step's share of the training, over the mean share.

    Args:
        weights: (K, T) credit W.

    Returns:
        (T,) column sums with mean 1; exactly 1 where they differ by rounding alone.
    """
    mass = np.asarray(weights, dtype=np.float64).sum(axis=0)
    if not mass.any() or np.ptp(mass) <= _EQUAL * mass.max():
        return np.ones(len(mass))
    shares: np.ndarray = mass / mass.mean()
    return shares


def whitened(advantages: Tensor, eps: float) -> Tensor:
    """Centred at every step, over one deviation for all of them, as GDPO's over a batch.

    A deviation for each step would make all steps equally loud and undo a column mass, by
    which RebRL's loss then divides all the same.

    Args:
        advantages: (T, N) of an epoch.
        eps: Added to the deviation.

    Returns:
        (T, N); the mean over steps of the deviation over samples is 1.
    """
    centred = advantages - advantages.mean(dim=1, keepdim=True)
    # In float64 the mean of equal float32 numbers is that number: static W stays to the bit.
    spread = centred.std(dim=1, correction=0).double().mean().to(advantages)
    return centred / (spread + eps)
