"""DiffusionNFT: forward-process RL, a contrast of an implicit good and bad policy.

Zheng et al. 2025, arXiv:2509.16117. Defaults are those of the released SD3 recipes; every
choice where paper and code leave room is a switch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import ConfigDict
from torch import Generator, Tensor

from recast_train.losses.nft import nft_loss
from recast_train.methods._density import even_density
from recast_train.methods._forward_process import noised_outputs, noised_works
from recast_train.methods.base import Loss, MethodSpec, Outputs, Work
from recast_train.policies.base import Rollout, VelocityPolicy
from recast_train.recipe_types import STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayConfig:
    """How slowly the drawing policy follows the trained one, by optimiser steps s."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: Literal["copy", "ramp", "late", "linear"] = "ramp"
    """``copy``: 0 (on-policy); ``ramp``: min(.001 s, .5); ``late``: 0 up to step 75, then
    min(.0075 (s - 75), .999): the released types 0, 1, 2. ``linear``: the keys below."""
    flat: int = 0
    """Steps with decay 0."""
    rate: float = 0.001
    """Decay gained a step after them."""
    ceiling: float = 0.5
    """The largest decay; reached at once with ``rate: 1``."""

    def problems(self) -> Iterator[str]:
        """What is out of range, or has no effect."""
        if not 0 <= self.ceiling < 1:
            yield f"old_decay.ceiling: must be in [0, 1), got {self.ceiling}"
        if self.rate < 0 or self.flat < 0:
            yield "old_decay: rate and flat must not be negative"
        idle = [f for f in fields(self) if getattr(self, f.name) != f.default and f.name != "kind"]
        if self.kind != "linear":
            yield from (f"old_decay.{f.name}: has no effect with kind {self.kind}" for f in idle)

    def at(self, step: int) -> float:
        """Decay after ``step`` optimiser steps, in [0, 1)."""
        flat, rate, ceiling = {
            "copy": (0, 0.0, 0.0),
            "ramp": (0, 0.001, 0.5),
            "late": (75, 0.0075, 0.999),
            "linear": (self.flat, self.rate, self.ceiling),
        }[self.kind]
        return min(rate * max(step - flat, 0), ceiling)


@dataclass(frozen=True, slots=True, kw_only=True)
class NftConfig:
    """The ``method:`` block for ``nft``."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    beta: float = 1.0
    """Distance of the implicit policies; 0.1 is faster and less stable (multi-reward, OCR)."""
    adv_clip: float = 5.0
    """A_max: optimality is ``1/2 + clip(A, +-A_max) / (2 A_max)``."""
    scale_by_clip: bool = True
    """Multiply the loss by ``adv_clip / beta`` as the released code does; with AdamW that
    matters only beside the KL and the gradient limit."""
    weighting: Literal["adaptive", "velocity"] = "adaptive"
    """x_0 errors over their own mean absolute value, or plain velocity errors."""
    kl: float = 1e-4
    """Weight of the squared distance to the base model's velocity; 0 skips its forward."""
    timestep_fraction: float = 0.99
    """Share of the noise levels that each sample is trained on, rounded down, at least one."""
    timesteps: Literal["permuted", "first"] = "permuted"
    """Which: a random choice for each sample, or the noisiest ones of all."""
    old_decay: DecayConfig = field(default_factory=DecayConfig)
    solver: str = ""
    """Rollout's solver; empty is the recipe's."""

    def problems(self) -> Iterator[str]:
        """What is out of range."""
        if self.beta <= 0:
            yield f"beta: must be positive, got {self.beta}"
        if self.adv_clip <= 0:
            yield f"adv_clip: must be positive, got {self.adv_clip}"
        if self.kl < 0:
            yield f"kl: must not be negative, got {self.kl}"
        if not 0 < self.timestep_fraction <= 1:
            yield f"timestep_fraction: must be in (0, 1], got {self.timestep_fraction}"
        yield from self.old_decay.problems()


def optimality(advantage: Tensor, adv_clip: float) -> Tensor:
    """Map advantages to [0, 1]: 1/2 at 0, linear, cut at ``+-adv_clip``."""
    return (0.5 + advantage / (2 * adv_clip)).clamp(0.0, 1.0)


class Nft:
    """The method; see ``recast_train.methods.base.Method``."""

    policy_kind = "velocity"

    def __init__(self, config: NftConfig) -> None:
        self.config = config
        self.rollout_plan: dict[str, Any] = {"solver": config.solver} if config.solver else {}

    def works(
        self, rollout: Rollout, num_steps: int, micro_batch: int, generator: Generator
    ) -> Iterator[Work]:
        """Every sample at its own random order of noise levels, with fresh noise each time."""
        count, used = len(rollout.x_0), self._used(num_steps)
        if self.config.timesteps == "permuted":
            orders = torch.rand(count, num_steps, generator=generator).argsort(dim=1)[:, :used]
        else:
            orders = torch.arange(used).repeat(count, 1)
        yield from noised_works(rollout, orders, micro_batch, generator)

    def _used(self, num_steps: int) -> int:
        return max(1, int(num_steps * self.config.timestep_fraction))

    def outputs(self, policy: VelocityPolicy, rollout: Rollout, work: Work) -> Outputs:
        """See ``noised_outputs``."""
        return noised_outputs(policy, rollout, work, reference=self.config.kl > 0)

    def loss(self, outputs: Outputs, advantage: Tensor) -> Loss:
        """The contrast at one advantage a sample: affine in it where it is not cut."""
        cfg, found = self.config, outputs.tensors
        good = optimality(advantage.to(found["new"].device, torch.float32), cfg.adv_clip)
        sigma = found["sigma"] if cfg.weighting == "adaptive" else None
        result = nft_loss(
            found["new"], found["old"], found["target"], good, beta=cfg.beta, sigma=sigma
        )
        scale = cfg.adv_clip / cfg.beta if cfg.scale_by_clip else 1.0
        moved = (found["new"].detach() - found["old"]).square().mean()
        logs = {
            "positive": result.positive,
            "negative": result.negative,
            "old_distance": moved,
            "clip_fraction": (advantage.abs() > cfg.adv_clip).float().mean(),
        }
        return Loss(scale * result.loss, logs)

    def penalty(self, outputs: Outputs) -> Loss:
        """Squared velocity distance to the base model, weighted."""
        new = outputs.tensors["new"]
        if "reference" not in outputs.tensors:
            return Loss(new.new_zeros(()), {})
        distance = (new - outputs.tensors["reference"]).square().mean()
        return Loss(self.config.kl * distance, {"kl": distance.detach()})

    def column_mass(self, rollout_masks: Tensor | None, num_steps: int) -> list[float] | None:
        """None: every step counts the same."""
        return None

    def step_density(self, sigmas: Tensor, epochs: int) -> np.ndarray | None:
        """The noisiest ones alone, if it is told so; else all alike."""
        if self.config.timesteps == "permuted":
            return None
        num_steps = len(sigmas) - 1
        return even_density(0, self._used(num_steps), num_steps)

    def old_decay(self, step: int, epoch: int) -> float:
        """By optimiser steps, as released."""
        return self.config.old_decay.at(step)


METHOD = MethodSpec(
    name="nft",
    policy_kind="velocity",
    config=NftConfig,
    build=Nft,
    summary="DiffusionNFT: contrast an implicit positive and negative policy on noised samples",
    reference="Zheng et al. 2025, arXiv:2509.16117",
)
