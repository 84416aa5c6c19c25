"""What every statistic asks of its inputs; a breach is a ValueError with law and value."""

from collections.abc import Hashable, Sequence

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

Ids = Sequence[Hashable] | np.ndarray
"""An id an item, compared as it is."""


def fraction(value: float, name: str) -> float:
    """Return ``value`` if it lies strictly between 0 and 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name} lies strictly between 0 and 1, got {value!r}")
    return float(value)


def finite(values: ArrayLike, name: str, *, ndim: int = 1) -> Float[np.ndarray, "..."]:
    """Return float64 values, all finite, of the given number of dimensions, not empty."""
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} are numbers in {ndim} dimension(s): {error}") from None
    if found.ndim != ndim:
        raise ValueError(f"{name} have {ndim} dimension(s), got shape {found.shape}")
    if found.size == 0:
        raise ValueError(f"{name} hold at least one number, got none")
    if not np.isfinite(found).all():
        worst = found[~np.isfinite(found)].flat[0]
        raise ValueError(f"{name} are finite, got {worst}: leave out what has no value")
    return found


def outcomes(values: ArrayLike, name: str = "scores") -> Float[np.ndarray, " pair"]:
    """Return outcomes of comparisons, each 1 (win), 0.5 (tie) or 0 (loss)."""
    found = finite(values, name)
    wrong = found[~np.isin(found, (0.0, 0.5, 1.0))]
    if wrong.size:
        raise ValueError(f"{name} are 0, 0.5 or 1, got {wrong[0]}")
    return found


def clusters(prompts: Ids, length: int) -> Int[np.ndarray, " item"]:
    """Return a number from 0 for each item's prompt, in order of first appearance.

    Ids are compared as they are: 1 and "1" are two prompts.
    """
    ids = prompts.tolist() if isinstance(prompts, np.ndarray) else list(prompts)
    if len(ids) != length:
        raise ValueError(f"each item has one prompt id, got {len(ids)} ids for {length} items")
    codes: dict[Hashable, int] = {}
    for name in ids:
        if name is None or name != name:  # a missing id would silently be a prompt of its own
            raise ValueError(f"a prompt id is a name or a number, got {name!r}")
        codes.setdefault(name, len(codes))
    return np.fromiter((codes[name] for name in ids), dtype=np.int64, count=length)


def cluster_means(
    values: Float[np.ndarray, " item"], codes: Int[np.ndarray, " item"]
) -> Float[np.ndarray, " prompt"]:
    """Average the items of each prompt: the prompt is the unit of everything that follows."""
    means: Float[np.ndarray, " prompt"] = np.bincount(codes, weights=values) / np.bincount(codes)
    return means
