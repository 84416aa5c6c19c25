"""Moving averages of curves and of their bootstrap replicates."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(slots=True)
class Moving:
    """Exponential mean of (R, ...) values, each entry after the first axis with its own weight.

    Replicates of different refreshes are independent, so the mean of replicates is a
    replicate of the mean: its spread shrinks as refreshes add up, with no further formula.
    """

    decay: float
    total: Array | None = None
    """(R, ...) decayed sum."""
    weight: Array | None = None
    """(...) decayed count; 0 where nothing was seen."""

    def add(self, values: Array, seen: npt.NDArray[np.bool_] | None = None) -> None:
        """Take in (R, ...) values; entries (...) that are not ``seen`` stay as they are."""
        shape = values.shape[1:]
        there = np.broadcast_to(True if seen is None else seen, shape)
        if self.total is None or self.weight is None:
            self.total, self.weight = np.zeros(values.shape), np.zeros(shape)
        keep = np.where(there, self.decay, 1.0)
        self.total = keep * self.total + np.where(there, (1.0 - self.decay) * values, 0.0)
        self.weight = keep * self.weight + np.where(there, 1.0 - self.decay, 0.0)

    @property
    def seen(self) -> npt.NDArray[np.bool_]:
        """(...) entries that have a value."""
        if self.weight is None:
            raise ValueError("nothing was seen yet")
        return self.weight > 0

    def mean(self) -> Array:
        """(R, ...) weighted mean; 0 where nothing was seen."""
        if self.total is None or self.weight is None:
            raise ValueError("nothing was seen yet")
        safe = np.where(self.weight > 0, self.weight, 1.0)
        out: Array = np.where(self.weight > 0, self.total / safe, 0.0)
        return out

    def state(self) -> dict[str, Any]:
        """JSON values; floats survive exactly."""
        return {
            "total": None if self.total is None else self.total.tolist(),
            "weight": None if self.weight is None else self.weight.tolist(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Put back what ``state`` gave; in old states a level has one weight for all rewards."""
        total, weight = state["total"], state["weight"]
        if total is None or weight is None:
            self.total = self.weight = None
            return
        self.total = np.array(total, dtype=np.float64)
        self.weight = np.broadcast_to(np.array(weight, dtype=np.float64), self.total.shape[1:])
