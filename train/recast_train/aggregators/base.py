"""What an aggregator is: how K per-reward advantages become one gradient.

An optimiser step is a list of work items. ``coefficients`` are mixed into the advantage
(``sum_k c_k A_k``), one backward each; on a *refresh* the loop instead takes K backwards per
item, hands over the K flat gradients, and gets back the combined one.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor


class Combined(NamedTuple):
    """Result of a refresh."""

    weights: Tensor
    """(K,) so that the update direction is ``sum_k weights_k g_k`` (times ``scale``)."""
    diagnostics: dict[str, float]
    """Gram entries, cosines, worst alignment, coefficients."""


class Aggregator(Protocol):
    """One file in ``recast_train/aggregators/``; the file calls its factory ``AGGREGATOR``."""

    needs_advantages: str
    """``zscore``: per-reward group z-scores alone; ``raw``: raw rewards may be mixed too."""
    gram_share: float
    """Share of a refresh's work items that take K backwards, in (0, 1]. Below 1 the step itself
    is an ordinary one, with the coefficients just solved."""
    whiten: bool
    """Whether the mixed advantages are divided by their spread over the batch (GDPO)."""

    def wants_gradients(self, step: int) -> bool:
        """Whether this optimiser step is a refresh."""
        ...

    def coefficients(self) -> np.ndarray:
        """(K,) mixing weights for an ordinary step, sum 1. The budgets, if nothing is balanced."""
        ...

    def scale(self) -> float:
        """Factor on the loss of an ordinary step; 1 unless the weights sum to something else."""
        ...

    def combine(self, gram: Tensor, active: Tensor) -> Combined:
        """Solve from the (K, K) float64 Gram matrix of the per-reward gradients.

        Args:
            gram: Inner products of full-step gradients, reduced over processes.
            active: (K,) bool; a reward without signal in this batch is False.
        """
        ...

    def state(self) -> dict[str, Any]:
        """For resuming."""
        ...

    def load_state(self, state: dict[str, Any]) -> None:
        """Put back what ``state`` gave."""
        ...


class AggregatorSpec(NamedTuple):
    """What a file of ``recast_train/aggregators/`` calls ``AGGREGATOR``."""

    name: str
    config: type
    build: Any
    """Callable: (config, budgets (K,)) -> Aggregator."""
    summary: str = ""
    reference: str = ""
