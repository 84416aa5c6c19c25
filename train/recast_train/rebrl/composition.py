"""Per-reward credit on top of an estimator's own stage credit, so that budgets stay exact.

An estimator already gives stage i the credit C_i. A credit matrix W (K, T) whose columns sum
to 1/T would then spend ``sum_i T W_ki C_i`` on reward k, not its budget. Solved for columns
that sum to C instead, ``V = W / C`` makes every stage a convex mix of the rewards, and the
mean over tokens of what reward k gets is its row sum.
"""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike


def stage_mix(credit: ArrayLike, column_mass: ArrayLike) -> Float[np.ndarray, "rewards steps"]:
    """V = W / C: how stage i mixes the rewards; a stage without mass mixes none.

    Args:
        credit: (K, T) W.
        column_mass: (T,) C that W was solved for; ``numpy.full(T, 1 / T)`` for equal columns.

    Raises:
        ValueError: Shapes differ, or W has credit where the mass is 0.
    """
    matrix = np.asarray(credit, dtype=np.float64)
    mass = np.asarray(column_mass, dtype=np.float64)
    if matrix.ndim != 2 or mass.shape != matrix.shape[1:]:
        raise ValueError(f"credit (K, T) and mass (T,) expected, got {matrix.shape}, {mass.shape}")
    empty = mass <= 0
    if (matrix[:, empty] != 0).any():
        raise ValueError("credit must be 0 where the column mass is 0")
    mixed: np.ndarray = np.where(empty, 0.0, matrix / np.where(empty, 1.0, mass))
    return mixed


def token_credit(mix: ArrayLike, weights: ArrayLike) -> Float[np.ndarray, "rewards tokens"]:
    """B_kn = sum_i V_ki a_in: what reward k gets on each token; its mean is the realised budget.

    Args:
        mix: (K, T) V.
        weights: (T, N) a of an estimator.

    Raises:
        ValueError: The numbers of stages differ.
    """
    left, right = np.asarray(mix, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        raise ValueError(f"(K, T) and (T, N) must share T, got {left.shape} and {right.shape}")
    product: np.ndarray = left @ right
    return product
