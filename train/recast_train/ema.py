"""The evaluated policy: a running mean of the trained weights."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter


class Ema:
    """Follows parameters with decay ``min((1 + s) / (10 + s), ceiling)``.

    Args:
        parameters: The trained ones; read at every update.
        ceiling: The largest decay; 0 keeps an exact copy.
    """

    def __init__(self, parameters: Sequence[Parameter], ceiling: float) -> None:
        self._parameters, self._ceiling = list(parameters), ceiling
        # Clones: on a CPU .detach().cpu() would be the trained tensor itself.
        self.weights: list[Tensor] = [p.detach().clone() for p in self._parameters]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Follow, after optimiser step ``step`` (from 1)."""
        decay = min((1 + step) / (10 + step), self._ceiling)
        for mean, parameter in zip(self.weights, self._parameters, strict=True):
            mean.lerp_(parameter, 1.0 - decay)

    def state(self) -> dict[str, Any]:
        """For resuming."""
        return {"weights": self.weights}

    def load_state(self, state: dict[str, Any]) -> None:
        """Put back what ``state`` gave."""
        for mean, saved in zip(self.weights, state["weights"], strict=True):
            mean.copy_(saved)
