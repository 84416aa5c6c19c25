"""How much of the training falls on each step, and what that does to the credit."""

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


def spent_on(
    weights: npt.ArrayLike, budgets: npt.ArrayLike, density: npt.ArrayLike | None
) -> np.ndarray:
    """W with rows scaled so that budgets hold on the steps that are trained.

    What reaches the loss of reward k is ``T sum_j density_j W[k, j]``: a row whose credit lies
    where nothing is trained gets too little. Their sum stays what it was, so that this is no
    change of the learning rate.

    Args:
        weights: (K, T) credit W.
        budgets: (K,) sum to 1.
        density: (T,) how often each step is trained on, sums to 1; None leaves W alone.

    Returns:
        (K, T) float64; W itself where budgets hold already. A reward all of whose credit lies
        outside has nothing to scale.
    """
    w = np.asarray(weights, dtype=np.float64)
    if density is None:
        return w
    lands = w @ np.asarray(density, dtype=np.float64)
    share = np.asarray(budgets, dtype=np.float64)
    reached = (lands > 0) & (share > 0)
    if not reached.any():
        return w
    factors = np.ones(len(w))
    factors[reached] = share[reached] / share[reached].sum() * lands.sum() / lands[reached]
    return w if np.ptp(factors[reached]) <= _EQUAL else w * factors[:, None]


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
