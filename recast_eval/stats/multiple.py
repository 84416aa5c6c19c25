"""Many comparisons at once."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike


def holm(p_values: ArrayLike) -> Float[np.ndarray, " test"]:
    """Adjust p-values so that one false alarm among all of them stays as rare as asked.

    Args:
        p_values: Raw p-values in [0, 1], in any order; may be empty.

    Returns:
        Adjusted p-values in the same order, never below the raw ones.

    Raises:
        ValueError: A value is not in [0, 1].

    References:
        Holm 1979, A simple sequentially rejective multiple test procedure.
    """
    raw = _p_values(p_values)
    order = np.argsort(raw, kind="stable")
    steps = raw[order] * np.arange(len(raw), 0, -1)
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def benjamini_hochberg(p_values: ArrayLike) -> Float[np.ndarray, " test"]:
    """Adjust p-values so that the share of false alarms among the findings stays as asked.

    For explorations, such as a table by category; ``holm`` is for what a report claims.

    Args:
        p_values: Raw p-values in [0, 1], in any order; may be empty.

    Returns:
        Adjusted p-values in the same order, never below the raw ones.

    Raises:
        ValueError: A value is not in [0, 1].

    References:
        Benjamini and Hochberg 1995, Controlling the false discovery rate.
    """
    raw = _p_values(p_values)
    order = np.argsort(raw, kind="stable")[::-1]
    steps = raw[order] * len(raw) / np.arange(len(raw), 0, -1)
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(np.minimum.accumulate(steps), 1.0)
    return adjusted


def _p_values(values: ArrayLike) -> Float[np.ndarray, " test"]:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1:
        raise ValueError(f"p-values are a list, got shape {found.shape}")
    wrong = found[~((found >= 0) & (found <= 1))]
    if wrong.size:
        raise ValueError(f"a p-value lies in [0, 1], got {wrong[0]}")
    return found
