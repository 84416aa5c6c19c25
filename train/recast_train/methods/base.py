"""What an RL method is: which steps to train on, what to compute there, and a loss.

A method never sees rewards. The loop hands it, per work item, an advantage per sample that
already holds the credit of that sample's step. Loss must be a plain function of that
advantage, so that an aggregator may evaluate it K times on one graph (MARBLE) or once on a
mixture. Whatever does not depend on the advantage (KL to the reference) is apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from torch import Generator, Tensor

from recast_train.policies.base import Policy, Rollout

P_contra = TypeVar("P_contra", bound=Policy, contravariant=True)


class Work(NamedTuple):
    """One forward-backward: some samples, each at a step of its own."""

    rows: Tensor
    """(B,) integer indices into the rollout."""
    steps: Tensor
    """(B,) integer step of each, 0 is the noisiest; its credit is ``W[:, step]``."""
    noise: Tensor | None = None
    """(B, ...) noise that was drawn for it, if the method noises clean samples."""
    weight: float = 1.0
    """Share of this item in the optimiser step's mean: the items' weights sum to 1."""


@dataclass(slots=True)
class Outputs:
    """What one work item computed; kept on the graph until its last backward."""

    tensors: dict[str, Tensor]
    """Named, batch first: ``new``, ``old``, ``reference``, ``target``, ``x_0_hat`` ..."""


class Loss(NamedTuple):
    """A scalar to step on and floats to log."""

    loss: Tensor
    logs: dict[str, Tensor]
    """Detached scalars."""


class Method(Protocol, Generic[P_contra]):
    """One file in ``recast_train/methods/``; the file calls its factory ``METHOD``."""

    policy_kind: str
    """``velocity`` or ``masked``: the policies it can train."""
    rollout_plan: dict[str, Any]
    """Passed to ``Policy.rollout``."""

    def works(
        self, rollout: Rollout, num_steps: int, micro_batch: int, generator: Generator
    ) -> Iterator[Work]:
        """All work of one optimiser step, micro-batched; draws noise and step orders."""
        ...

    def outputs(self, policy: P_contra, rollout: Rollout, work: Work) -> Outputs:
        """Run the forwards of one work item: graph on ``new`` only."""
        ...

    def loss(self, outputs: Outputs, advantage: Tensor) -> Loss:
        """The reward part, a mean over the B samples.

        Args:
            outputs: Of the same work item.
            advantage: (B,) per-sample advantage at its step, credit included.
        """
        ...

    def penalty(self, outputs: Outputs) -> Loss:
        """The advantage-free part (KL to the reference, pull to an EMA); zero if none."""
        ...

    def column_mass(self, rollout_masks: Tensor | None, num_steps: int) -> list[float] | None:
        """(T,) credit that the method itself gives each step; None is 1/T."""
        ...

    def step_density(self, sigmas: Tensor, epochs: int) -> np.ndarray | None:
        """(T,) how often each step is trained on, summing to 1; None: all alike.

        Rows of W are scaled by it, so that each reward's budget is spent on trained steps.

        Args:
            sigmas: (T+1,) of the policy.
            epochs: Of the run, in whose mean it is meant.
        """
        ...

    def old_decay(self, step: int, epoch: int) -> float:
        """Decay of the old policy after optimiser step ``step`` (0 copies new into old)."""
        ...


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """What a file of ``recast_train/methods/`` calls ``METHOD``."""

    name: str
    policy_kind: str
    config: type
    """Frozen dataclass of the method's switches: the recipe's ``method:`` block."""
    build: Any
    """Callable: config -> Method."""
    summary: str = ""
    reference: str = ""
    tags: dict[str, str] = field(default_factory=dict)
