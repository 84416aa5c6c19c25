"""Moving averages of curves and of their bootstrap replicates."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(slots=True)
class Moving:
    """Exponential mean along the last axis's entries, each with a weight of its own.

    Replicates of different refreshes are independent, so the mean of replicates is a
    replicate of the mean: its spread shrinks as refreshes add up, with no further formula.
    """

    decay: float
    total: Array | None = None
    """(..., P) decayed sum."""
    weight: Array | None = None
    """(P,) decayed count; 0 where nothing was seen."""

    def add(self, values: Array, seen: npt.NDArray[np.bool_] | None = None) -> None:
        """Take in (..., P) values; entries that are not ``seen`` stay as they are."""
        there = np.ones(values.shape[-1], dtype=bool) if seen is None else seen
        if self.total is None or self.weight is None:
            self.total = np.zeros(values.shape)
            self.weight = np.zeros(values.shape[-1])
        keep = np.where(there, self.decay, 1.0)
        self.total = keep * self.total + np.where(there, (1.0 - self.decay) * values, 0.0)
        self.weight = keep * self.weight + np.where(there, 1.0 - self.decay, 0.0)

    @property
    def seen(self) -> npt.NDArray[np.bool_]:
        """(P,) entries that have a value."""
        if self.weight is None:
            raise ValueError("nothing was seen yet")
        return self.weight > 0

    def mean(self) -> Array:
        """(..., P) weighted mean; NaN where nothing was seen."""
        if self.total is None or self.weight is None:
            raise ValueError("nothing was seen yet")
        safe = np.where(self.weight > 0, self.weight, 1.0)
        out: Array = np.where(self.weight > 0, self.total / safe, np.nan)
        return out

    def state(self) -> dict[str, Any]:
        """JSON values; floats survive exactly."""
        return {
            "total": None if self.total is None else self.total.tolist(),
            "weight": None if self.weight is None else self.weight.tolist(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Put back what ``state`` gave."""
        total, weight = state["total"], state["weight"]
        self.total = None if total is None else np.array(total, dtype=np.float64)
        self.weight = None if weight is None else np.array(weight, dtype=np.float64)
