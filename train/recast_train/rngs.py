"""One seed, several named streams: what one part draws never shifts what another sees."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from torch import Generator, Tensor

STREAMS: Final = ("rollout", "training", "order")
"""Rollout noise; training noise and timestep orders; which images go into which optimiser
step. Prompts and probes are computed from the seed and the epoch, and need no stream."""


def derive_seed(seed: int, *path: str | int) -> int:
    """A seed in [0, 2^63) that depends on all of its parts."""
    text = "/".join(map(str, (seed, *path)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


class Streams:
    """The named CPU generators of a run."""

    def __init__(self, seed: int) -> None:
        self._generators = {n: Generator().manual_seed(derive_seed(seed, n)) for n in STREAMS}

    def __getitem__(self, name: str) -> Generator:
        return self._generators[name]

    def state(self) -> dict[str, Any]:
        """Where each stream stands."""
        return {name: g.get_state() for name, g in self._generators.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Put all streams back where they stood."""
        for name, generator in self._generators.items():
            generator.set_state(state[name])
