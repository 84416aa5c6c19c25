"""What a policy is: something that draws images from prompts, with three sets of weights.

``new`` is trained; ``old`` draws the rollouts and follows ``new`` slowly (DiffusionNFT)
or equals it at the start of an epoch (policy gradient); ``reference`` is the base model
(adapters off). Shapes: N samples, T denoising steps, ``sigmas`` (T+1,) from 1 to 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from torch import Generator, Tensor
from torch.nn import Parameter

Who = Literal["new", "old", "reference"]


@dataclass(frozen=True, slots=True)
class Condition:
    """Encoded prompts, batch first; ``take`` picks rows."""

    tensors: dict[str, Tensor]

    def take(self, rows: Tensor) -> "Condition":
        """The condition of some samples, (rows,) integers."""
        return Condition({k: v[rows] for k, v in self.tensors.items()})


@dataclass(frozen=True, slots=True)
class Rollout:
    """N finished samples and what a method needs of how they came about."""

    x_0: Tensor
    """(N, ...) final latents, or (N, tokens) integers for masked diffusion."""
    condition: Condition
    trace: dict[str, Tensor] = field(default_factory=dict)
    """Method-specific, batch first: SDE states ``states`` (N, T+1, ...), ``log_probs`` (N, T),
    ``means`` (N, T, ...); masked: ``decode_step`` (N, tokens). Empty for NFT."""

    def take(self, rows: Tensor) -> "Rollout":
        """Some of the samples, (rows,) integers."""
        trace = {k: v[rows] for k, v in self.trace.items()}
        return Rollout(self.x_0[rows], self.condition.take(rows), trace)


class Policy(Protocol):
    """Shared by velocity and masked policies."""

    sigmas: Tensor
    """(T+1,) float32 noise levels of the training sampler, scheduler order, 1 to 0."""

    def parameters(self) -> list[Parameter]:
        """The trainable (``new``) parameters, in a fixed order."""
        ...

    def encode(self, prompts: Sequence[str]) -> Condition:
        """Encode prompts (cached); no graph."""
        ...

    def rollout(self, condition: Condition, generator: Generator, plan: dict[str, Any]) -> Rollout:
        """Draw one sample a row of ``condition`` with the ``old`` weights; no graph.

        Args:
            condition: N encoded prompts.
            generator: The only source of randomness.
            plan: The method's wishes (``solver``: "euler" | "dpm2" | "sde" | "cps", noise level,
                window ...), see the policy; an empty plan is the recipe's sampler. Three keys come
                from the loop: ``rows`` (first, last + 1, total) says which rows of a larger draw
                these are: noise is drawn for all of it and cut, so that any number of processes
                draws the same images; ``group_size``; ``epoch`` counts from 0.
        """
        ...

    @property
    def nominal_masks(self) -> Tensor | None:
        """(T, tokens) masks with the schedule's counts, for a masked policy; else None."""
        ...

    def noised(self, x_0: Tensor, step: int, noise: Tensor) -> Tensor:
        """Finished samples brought to the state before ``step``, noised or masked, (B, ...).

        ``noise`` is standard normal and shaped as ``x_0``; the same one nests over steps.
        """
        ...

    def estimate(self, x_t: Tensor, sigma: Tensor, condition: Condition) -> Tensor:
        """The old policy's x_0 from x_t at ``sigma`` (B,), in one go, (B, ...); no graph."""
        ...

    def features(self, x_0: Tensor) -> np.ndarray:
        """(B, F) pooled statistics of samples, float64."""
        ...

    def complete(
        self,
        x_t: Tensor,
        step: int,
        condition: Condition,
        generator: Generator,
        *,
        rows: tuple[int, int, int] | None = None,
    ) -> Tensor:
        """One stochastic draw of x_0 from the state before ``step`` with the old weights.

        ``rows`` as in ``rollout``: which rows of a larger draw these are; None is all.
        """
        ...

    def decode(self, x_0: Tensor) -> np.ndarray:
        """Latents to uint8 RGB images (N, H, W, 3)."""
        ...

    def save_adapter(self, folder: Path, weights: Sequence[Tensor] | None = None) -> None:
        """Write what others load without us: ``weights`` (as ``parameters``) or ``new``."""
        ...

    def update_old(self, decay: float) -> None:
        """Set old <- decay * old + (1 - decay) * new."""
        ...

    def state(self) -> dict[str, Any]:
        """Everything a resumed run needs: new and old weights, by name."""
        ...

    def load_state(self, state: dict[str, Any]) -> None:
        """Put back what ``state`` gave."""
        ...


class VelocityPolicy(Policy, Protocol):
    """A rectified-flow policy: x_t = (1-t) x_0 + t noise, velocity = noise - x_0."""

    @property
    def on_policy(self) -> bool:
        """Whether ``old`` holds the very numbers of ``new``: one forward then serves both."""
        ...

    def velocity(self, x_t: Tensor, sigma: Tensor, condition: Condition, *, who: Who) -> Tensor:
        """Velocity at x_t.

        Args:
            x_t: (B, ...) latents.
            sigma: (B,) noise levels in (0, 1].
            condition: B rows.
            who: Whose weights; a graph is kept for ``new`` alone.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySetup:
    """What every policy is built from, beside its own block of the recipe."""

    steps: int
    guidance_scale: float
    solver: str
    shift: float | None
    rollout_batch: int
    """Rows a forward of the rollout; 0 is all."""
    precision: Literal["fp32", "bf16"]
    shard: bool = False
    """Split frozen weights over the processes."""
    rollout_precision: Literal["", "fp32", "bf16"] = ""
    """Of rollouts alone; empty is ``precision``."""
    device: str
    seed: int


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """What a file of ``recast_train/policies/`` calls ``POLICY``."""

    name: str
    policy_kind: str
    """``velocity`` or ``masked``; a method names the kind that it trains."""
    config: type
    """Frozen dataclass: the recipe's ``model:`` block."""
    build: Any
    """Callable: (config, PolicySetup) -> Policy."""
    solvers: tuple[str, ...]
    """What the recipe's ``sampler.solver`` may say; the first is the default."""
    shards: bool = False
    """Whether it heeds ``PolicySetup.shard``; one that does not is refused under FSDP."""
    summary: str = ""
