"""Aggregators that mix with the budgets and never ask for per-reward gradients."""

from typing import Any, NoReturn

import numpy as np
from torch import Tensor


class FixedMixture:
    """The budgets, always.

    Args:
        budgets: (K,) sum to 1.
        needs_advantages: ``raw`` if raw rewards may be mixed, ``zscore`` if not.
        whiten: Divide the mixed advantages by their spread over the batch.
    """

    gram_share = 1.0

    def __init__(self, budgets: np.ndarray, needs_advantages: str, whiten: bool = False) -> None:
        self._budgets = np.asarray(budgets, np.float64)
        self.needs_advantages, self.whiten = needs_advantages, whiten

    def wants_gradients(self, step: int) -> bool:
        """Never."""
        return False

    def coefficients(self) -> np.ndarray:
        """(K,) the budgets."""
        return self._budgets

    def scale(self) -> float:
        """1: the budgets sum to 1."""
        return 1.0

    def combine(self, gram: Tensor, active: Tensor) -> NoReturn:
        """Not asked for.

        Raises:
            ValueError: Always: there is nothing to solve.
        """
        raise ValueError("a fixed mixture solves nothing: it never wants gradients")

    def state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Nothing."""
