"""Advantage-weighted matching: a policy gradient whose log-likelihood is the matching loss.

Xue et al. 2025, arXiv:2509.25050. Clean samples of an ODE rollout are noised anew; the ratio
compares trained and drawing policy on one noise. As released, a pull to a slow average of the
weights keeps it from collapsing. That average is the drawing policy itself here, which follows
with the decay that the authors give their separate one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Generator, Tensor

from recast_train.losses.awm import Likelihood, matching_log_prob
from recast_train.losses.policy_gradient import policy_gradient_loss
from recast_train.methods._density import even_density
from recast_train.methods._forward_process import noised_outputs, noised_works
from recast_train.methods.base import Loss, MethodSpec, Outputs, Work
from recast_train.policies.base import Rollout, VelocityPolicy
from recast_train.recipe_types import STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class AwmConfig:
    """The ``method:`` block for ``awm``."""

    __pydantic_config__: ClassVar = STRICT

    likelihood: Likelihood = "ghuber"
    """How the matching error becomes a log-likelihood, see ``matching_log_prob``."""
    power: float = 0.25
    """Exponent of ``ghuber``."""
    train_steps: int = 6
    """Noise levels that a sample is trained on, one from each of as many strata."""
    stratum_share: float = 0.9
    """Share of the sampler's noise levels, without the first, that the strata cover."""
    adv_clip: float = 5.0
    """Advantages are cut to +-this, then divided by it."""
    clip: float = 1.0
    """Half-width of the trust region; 1, as released, hardly ever clips."""
    kl: float = 0.001
    """Weight of the squared velocity distance to the base model."""
    kl_old: float = 1.0
    """Weight of that to the drawing policy, the slow average."""
    decay_rate: float = 0.001
    """The drawing policy keeps ``min(decay_ceiling, decay_rate s)`` after s steps."""
    decay_ceiling: float = 0.3
    solver: str = ""
    """Rollout's solver; empty is the recipe's."""

    def problems(self) -> Iterator[str]:
        """What is out of range."""
        if not 0.0 < self.power <= 1.0:
            yield f"power: must be in (0, 1], got {self.power}"
        if self.train_steps < 1:
            yield f"train_steps: must be 1 or more, got {self.train_steps}"
        if not 0.0 < self.stratum_share <= 1.0:
            yield f"stratum_share: must be in (0, 1], got {self.stratum_share}"
        for key in ("adv_clip", "clip"):
            if getattr(self, key) <= 0.0:
                yield f"{key}: must be positive, got {getattr(self, key)}"
        for key in ("kl", "kl_old", "decay_rate"):
            if getattr(self, key) < 0.0:
                yield f"{key}: must not be negative, got {getattr(self, key)}"
        if not 0.0 <= self.decay_ceiling < 1.0:
            yield f"decay_ceiling: must be in [0, 1), got {self.decay_ceiling}"


class Awm:
    """The method; see ``recast_train.methods.base.Method``."""

    policy_kind = "velocity"

    def __init__(self, config: AwmConfig) -> None:
        self.config = config
        self.rollout_plan: dict[str, Any] = {"solver": config.solver} if config.solver else {}

    def works(
        self, rollout: Rollout, num_steps: int, micro_batch: int, generator: Generator
    ) -> Iterator[Work]:
        """A noise level of each stratum for every sample, with fresh noise each time."""
        steps = self._steps(len(rollout.x_0), num_steps, generator)
        yield from noised_works(rollout, steps, micro_batch, generator)

    def _steps(self, count: int, num_steps: int, generator: Generator) -> Tensor:
        """(count, strata) steps, without the first one, if there is another."""
        first, last = self._range(num_steps)
        strata = min(self.config.train_steps, last - first)
        edges = torch.linspace(first, last, strata + 1)
        draw = torch.rand(count, strata, generator=generator)
        steps = (edges[:-1] + draw * edges.diff()).long()
        return steps.clamp(first, last - 1)

    def _range(self, num_steps: int) -> tuple[int, int]:
        first = min(1, num_steps - 1)
        count = int((num_steps - first) * self.config.stratum_share)
        return first, max(first + 1, first + count)

    def outputs(self, policy: VelocityPolicy, rollout: Rollout, work: Work) -> Outputs:
        """See ``noised_outputs``."""
        return noised_outputs(policy, rollout, work, reference=self.config.kl > 0)

    def loss(self, outputs: Outputs, advantage: Tensor) -> Loss:
        """The clipped surrogate on the two log-likelihoods."""
        cfg, found = self.config, outputs.tensors
        gain = advantage.to(found["new"]).clamp(-cfg.adv_clip, cfg.adv_clip) / cfg.adv_clip
        new, old = (
            matching_log_prob(
                found[who], found["target"], found["sigma"], kind=cfg.likelihood, power=cfg.power
            )
            for who in ("new", "old")
        )
        result = policy_gradient_loss(new, old, gain, clip=cfg.clip)
        return Loss(
            result.loss, {"clip_fraction": result.clip_fraction, "ratio_mean": result.ratio_mean}
        )

    def penalty(self, outputs: Outputs) -> Loss:
        """Squared velocity distances to the base model and to the drawing policy."""
        found, new = outputs.tensors, outputs.tensors["new"]
        pull = (new - found["old"]).square().mean()
        loss, logs = self.config.kl_old * pull, {"old_distance": pull.detach()}
        if "reference" in found:
            distance = (new - found["reference"]).square().mean()
            loss, logs["kl"] = loss + self.config.kl * distance, distance.detach()
        return Loss(loss, logs)

    def column_mass(self, rollout_masks: Tensor | None, num_steps: int) -> list[float] | None:
        """None: every step counts the same."""
        return None

    def step_density(self, sigmas: Tensor, epochs: int) -> np.ndarray | None:
        """The same in all strata, which leave out the first step and the last."""
        num_steps = len(sigmas) - 1
        return even_density(*self._range(num_steps), num_steps)

    def old_decay(self, step: int, epoch: int) -> float:
        """Rising to its ceiling with the optimiser steps."""
        return min(self.config.decay_ceiling, self.config.decay_rate * step)


METHOD = MethodSpec(
    name="awm",
    policy_kind="velocity",
    config=AwmConfig,
    build=Awm,
    summary="advantage-weighted matching on noised samples of an ODE rollout",
    reference="Xue et al. 2025, arXiv:2509.25050",
)
