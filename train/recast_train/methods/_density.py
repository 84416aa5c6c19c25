"""How often each step is trained on where it is not as often as any other."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


def even_density(first: int, last: int, num_steps: int) -> np.ndarray:
    """(T,) the same on steps [first, last), 0 elsewhere; sums to 1."""
    density = np.zeros(num_steps)
    density[first:last] = 1.0 / (last - first)
    return density


def window_density(
    window: Mapping[str, Any], bounds: tuple[int, int], trained: npt.ArrayLike, epochs: int
) -> np.ndarray:
    """Where a method trains that trains on a window, in the mean over a run.

    Args:
        window: As in ``find_window``.
        bounds: Steps [low, high) that it may lie in, and fits into.
        trained: (T,) bool, False on steps that are left out where a window holds them.
        epochs: Of the run: a sliding window may never come to the end.

    Returns:
        (T,) float64, sums to 1: each epoch counts the same, whatever its window holds. Zeros if
        no step is ever trained.
    """
    used = np.asarray(trained, dtype=bool)
    (low, high), steps = bounds, np.arange(len(used))
    size = high - low if window["kind"] == "all" else int(window["size"])
    begins = np.arange(low, high - size + 1)
    if window["kind"] == "sliding":
        moved = np.arange(epochs) // int(window["every"]) * int(window["stride"])
        begins = low + np.minimum(moved, len(begins) - 1)
    inside = (begins[:, None] <= steps) & (steps < begins[:, None] + size) & used
    share = inside.astype(np.float64)
    if window["kind"] != "branch":  # branches are averaged together, epochs each for itself
        share = share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    total = share.sum()
    density: np.ndarray = share.sum(axis=0) / (total if total > 0 else 1.0)
    return density
