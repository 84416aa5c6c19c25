"""What a credit is: the source of W for each epoch. Pure maths lives beside it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from recast_eval.records import CreditRecord


@dataclass(frozen=True, slots=True)
class Probes:
    """What an epoch offers to a credit that learns: samples that are already scored.

    P probe sigmas, N = groups x G samples, K rewards.
    """

    epoch: int
    rewards: np.ndarray
    """(K, N) raw values; NaN where a reward failed."""
    prompts: np.ndarray
    """(N,) integer group of each sample."""
    sigmas: np.ndarray
    """(P,) noise levels of the probes, scheduler order."""
    x0_rewards: Callable[[], np.ndarray]
    """() -> (P, K, N): rewards of the decoded x_0 estimates, computed when asked for."""
    features: Callable[[], np.ndarray]
    """() -> (P, N, F): pooled latent statistics of the x_0 estimates."""
    complete: Callable[[int], np.ndarray]
    """completions(probe index) -> (K, N): rewards of one ancestral completion each
    (forward pair); costs model calls."""


class Credit(Protocol):
    """One file in ``recast_train/credit/kinds/``; the file calls its factory ``CREDIT``."""

    def weights(self) -> np.ndarray:
        """(K, T) W to use now."""
        ...

    def wants(self, epoch: int) -> bool:
        """Whether ``observe`` should be called after this epoch's rewards."""
        ...

    def observe(self, probes: Probes) -> CreditRecord | None:
        """Learn from an epoch; a record if W was solved anew."""
        ...

    def record(self, epoch: int) -> CreditRecord:
        """W as it stands, for ``credit.jsonl``."""
        ...

    def state(self) -> dict[str, Any]:
        """For resuming; JSON values and tensors."""
        ...

    def load_state(self, state: dict[str, Any]) -> None:
        """Put back what ``state`` gave."""
        ...


@dataclass(frozen=True, slots=True)
class CreditSetup:
    """What every credit is built from."""

    rewards: tuple[str, ...]
    budgets: np.ndarray
    """(K,) sum to 1."""
    sigmas: np.ndarray
    """(T+1,)"""
    column_mass: np.ndarray | None
    seed: int
    base_model: str = ""
    """What is trained, as the recipe names it; empty: not to be compared with anything."""


@dataclass(frozen=True, slots=True)
class CreditSpec:
    """What a file of ``recast_train/credit/kinds/`` calls ``CREDIT``."""

    name: str
    config: type
    """Frozen dataclass: the recipe's ``credit:`` block. It may have ``problems()`` and
    ``clashes(recipe)``, which yield what is wrong, and ``files()``, a label and path of each file
    that it reads."""
    build: Any
    """Callable: (config, CreditSetup) -> Credit."""
    summary: str = ""
    looks: bool = True
    """Whether its kind ever asks for estimates, features or completions; for one that does not,
    training keeps no estimates."""
