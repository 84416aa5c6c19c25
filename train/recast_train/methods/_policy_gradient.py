"""What the Flow-GRPO family shares: stochastic rollouts, step densities, a clipped surrogate.

Its members differ in where noise is added (the window), how much, and how steps are weighted.
The surrogate is affine in the advantage where nothing is clipped, hence exactly on-policy;
there MARBLE's one-backward identity holds, elsewhere to first order.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import BeforeValidator
from torch import Generator, Tensor

from recast_train.losses.policy_gradient import policy_gradient_loss
from recast_train.methods._density import window_density
from recast_train.methods.base import Loss, Outputs, Work
from recast_train.policies._windows import window_range
from recast_train.policies.base import Rollout, VelocityPolicy
from recast_train.recipe_types import STRICT, Recipe
from recast_train.sde import (
    Step,
    cps_step,
    gaussian_kl,
    guard_log_ratio,
    mean_log_prob,
    noise_aware_weights,
    sde_step,
    step_stds,
    unscaled_gaussian_kl,
    unscaled_mean_log_prob,
    visible,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowConfig:
    """Which steps of a rollout are stochastic, and thus trained; ODE steps elsewhere."""

    __pydantic_config__: ClassVar = STRICT

    kind: Literal["all", "random", "sliding", "branch"] = "all"
    """``random``: anew each epoch; ``sliding``: moves with the epochs; ``branch``: each run of
    ``branches`` samples of a group gets a step of its own."""
    size: int = 0
    """Steps in the window; all for ``all``."""
    low: float = 0.0
    """Where it may begin, as a share of the steps."""
    high: float = 1.0
    """Where it must end, as a share of the steps."""
    every: int = 1
    """Sliding: epochs between moves."""
    stride: int = 1
    """Sliding: steps that a move advances; it stops at ``high``, or where noise cannot be seen."""
    branches: int = 1
    """Branch: consecutive samples that share a step."""

    def problems(self) -> Iterator[str]:
        """What is out of range, or has no effect."""
        for switch in fields(self):
            idle = switch.name not in ("kind", *_READ[self.kind])
            if idle and getattr(self, switch.name) != switch.default:
                yield f"window.{switch.name}: has no effect with kind {self.kind}"
        if self.kind != "all" and self.size < 1:
            yield f"window.size: must be 1 or more, got {self.size}"
        if not 0.0 <= self.low < self.high <= 1.0:
            yield f"window: 0 <= low < high <= 1, got {self.low} and {self.high}"
        for key in ("every", "stride", "branches"):
            if getattr(self, key) < 1:
                yield f"window.{key}: must be 1 or more, got {getattr(self, key)}"
        if self.kind == "branch" and self.branches == 1:
            yield "window.branches: must be 2 or more, as they are compared with each other, got 1"


_READ: dict[str, tuple[str, ...]] = {
    "all": (),
    "random": ("size", "low", "high"),
    "sliding": ("size", "low", "high", "every", "stride"),
    "branch": ("size", "low", "high", "branches"),
}
"""The keys that each kind of window looks at."""


def laid_over(default: WindowConfig) -> BeforeValidator:
    """A recipe's window keys change a method's own window; another ``kind`` starts afresh."""

    def merge(given: Any) -> Any:
        same = isinstance(given, Mapping) and given.get("kind", default.kind) == default.kind
        return {**asdict(default), **given} if same else given

    return BeforeValidator(merge)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyGradientConfig:
    """Flow-GRPO by default; its relatives change a few keys."""

    __pydantic_config__: ClassVar = STRICT

    solver: Literal["sde", "cps"] = "sde"
    """Whose stochastic step: Flow-GRPO's, or coefficients-preserving sampling."""
    noise_level: float = 0.7
    window: WindowConfig = field(default_factory=WindowConfig)
    shared_noise: bool = False
    """The samples of a group start from one initial noise."""
    clip: float = 1e-4
    """Half-width of the trust region for the ratio, a D-th root (see ``mean_log_prob``)."""
    adv_clip: float = 5.0
    """Advantages are cut to +-this."""
    kl: float = 0.004
    """Weight of the KL to the base model, per step; 0 skips the reference's forward. For ``sde``
    divided by the step's variance 2 s^2 |dt|: the released code, with .04, leaves |dt| out, which
    is about ten times weaker. For ``cps`` undivided, as its log-probability is."""
    timestep_fraction: float = 0.99
    """Of a window over all steps, the share that is trained: rounds down, drops the last."""
    ratio: Literal["plain", "guard"] = "plain"
    """``guard``: GRPO-Guard's normalised ratio."""
    step_weight: Literal["none", "inverse_dt", "noise"] = "none"
    """``inverse_dt``: GRPO-Guard's 1/|dt|; ``noise``: TempFlow's, mean 1."""
    old_density: Literal["recomputed", "stored"] = "recomputed"
    """Where the drawing policy's density comes from once it differs from the trained one: a
    forward of the same batch, or the rollout's, whose other batch size costs digits."""

    def problems(self) -> Iterator[str]:
        """What is out of range."""
        yield from self.window.problems()
        if self.noise_level <= 0.0:
            yield f"noise_level: must be positive to explore, got {self.noise_level}"
        if self.solver == "cps" and self.noise_level > 1.0:
            yield f"noise_level: at most 1 for cps, got {self.noise_level}"
        for key in ("clip", "adv_clip"):
            if getattr(self, key) <= 0.0:
                yield f"{key}: must be positive, got {getattr(self, key)}"
        if self.kl < 0.0:
            yield f"kl: must not be negative, got {self.kl}"
        if not 0.0 < self.timestep_fraction <= 1.0:
            yield f"timestep_fraction: must be in (0, 1], got {self.timestep_fraction}"

    def clashes(self, recipe: Recipe) -> Iterator[str]:
        """What does not fit the rest of the recipe."""
        window, size = self.window, recipe.groups.group_size
        if recipe.sampler.steps < 2:
            yield f"kind: needs sampler.steps of 2 or more, got {recipe.sampler.steps}"
        if window.kind != "all":
            try:
                window_range(asdict(window), recipe.sampler.steps)
            except ValueError as error:
                yield f"window: {error} (sampler.steps)"
        if window.kind == "branch" and window.branches > 1 and size % window.branches:
            yield (
                f"window.branches: must divide groups.group_size, as {window.branches} samples "
                f"at a time share a step, got {window.branches} and {size}"
            )


class PolicyGradient:
    """The method; see ``recast_train.methods.base.Method``."""

    policy_kind = "velocity"

    def __init__(self, config: PolicyGradientConfig) -> None:
        self.config = config
        self.rollout_plan: dict[str, Any] = {
            "solver": config.solver,
            "noise_level": config.noise_level,
            "window": asdict(config.window),
            "shared_noise": config.shared_noise,
        }

    def works(
        self, rollout: Rollout, num_steps: int, micro_batch: int, generator: Generator
    ) -> Iterator[Work]:
        """Every step whose noise shows, of every sample, in the sampler's order; draws nothing."""
        trained = visible(rollout.trace["stds"].cpu())
        if self.config.window.kind == "all":
            trained[:, self._explored(num_steps)[1] :] = False
        total = int(trained.sum())
        # Sorting puts each sample's trained steps first, in order.
        order = (~trained).to(torch.uint8).argsort(dim=1, stable=True)
        counts = trained.sum(dim=1)
        for first in range(0, len(trained), micro_batch):
            rows = torch.arange(first, min(first + micro_batch, len(trained)))
            for column in range(int(counts[rows].max())):
                there = rows[counts[rows] > column]
                yield Work(there, order[there, column], None, len(there) / total)

    def outputs(self, policy: VelocityPolicy, rollout: Rollout, work: Work) -> Outputs:
        """Densities of the step that was taken, under the trained and the drawing policy."""
        cfg, trace, rows, steps = self.config, rollout.trace, work.rows, work.steps
        x_t, x_next = trace["states"][rows, steps], trace["states"][rows, steps + 1]
        sigmas = policy.sigmas.to(x_t)
        sigma, sigma_next = sigmas[steps], sigmas[steps + 1]
        condition = rollout.condition.take(rows)
        velocity = policy.velocity(x_t, sigma, condition, who="new")
        new = self._step(x_t, velocity, sigma, sigma_next, sigmas)
        found = {"x_next": x_next, "mean": new.mean, "std": new.std, "dt": sigma_next - sigma}
        found["log_prob"] = self._log_prob(x_next, new)
        if cfg.old_density == "stored" and not policy.on_policy:
            found["old_mean"] = trace["means"][rows, steps]
            found["old_log_prob"] = trace["log_probs"][rows, steps]
        else:
            drew = velocity.detach()
            if not policy.on_policy:
                drew = policy.velocity(x_t, sigma, condition, who="old")
            old = self._step(x_t, drew, sigma, sigma_next, sigmas)
            found["old_mean"], found["old_log_prob"] = old.mean, self._log_prob(x_next, old)
        if cfg.step_weight == "noise":
            stds = step_stds(sigmas, solver=cfg.solver, noise_level=cfg.noise_level)
            found["weight"] = noise_aware_weights(stds, *self._explored(len(stds)))[steps]
        if cfg.kl > 0:
            base = policy.velocity(x_t, sigma, condition, who="reference")
            found["reference_mean"] = self._step(x_t, base, sigma, sigma_next, sigmas).mean
        return Outputs(found)

    def loss(self, outputs: Outputs, advantage: Tensor) -> Loss:
        """The clipped surrogate, a mean over the samples."""
        cfg, found = self.config, outputs.tensors
        gain = advantage.to(found["log_prob"]).clamp(-cfg.adv_clip, cfg.adv_clip)
        # A positive factor on the advantage is one on its surrogate.
        if cfg.step_weight == "inverse_dt":
            gain = gain / found["dt"].abs()
        elif cfg.step_weight == "noise":
            gain = gain * found["weight"]
        log_prob, old_log_prob = found["log_prob"], found["old_log_prob"]
        if cfg.ratio == "guard":
            old = Step(found["old_mean"], found["std"])
            log_prob = guard_log_ratio(found["x_next"], found["mean"], old)
            old_log_prob = torch.zeros_like(log_prob)
        result = policy_gradient_loss(log_prob, old_log_prob, gain, clip=cfg.clip)
        return Loss(
            result.loss, {"clip_fraction": result.clip_fraction, "ratio_mean": result.ratio_mean}
        )

    def penalty(self, outputs: Outputs) -> Loss:
        """KL of the step to the base model's, weighted."""
        found = outputs.tensors
        if "reference_mean" not in found:
            return Loss(found["mean"].new_zeros(()), {})
        mean, reference = found["mean"], found["reference_mean"]
        if self.config.solver == "cps":
            kl = unscaled_gaussian_kl(mean, reference).mean()
        else:
            kl = gaussian_kl(mean, reference, found["std"]).mean()
        return Loss(self.config.kl * kl, {"kl": kl.detach()})

    def column_mass(self, rollout_masks: Tensor | None, num_steps: int) -> list[float] | None:
        """None: every step counts the same."""
        return None

    def step_density(self, sigmas: Tensor, epochs: int) -> np.ndarray | None:
        """Where the window lies and noise shows, in the mean over a run."""
        stds = step_stds(sigmas, solver=self.config.solver, noise_level=self.config.noise_level)
        seen = visible(stds)
        bounds = self._explored(len(stds), 1 + int(seen.nonzero().max()))
        return window_density(asdict(self.config.window), bounds, seen.numpy(), epochs)

    def old_decay(self, step: int, epoch: int) -> float:
        """0: each epoch is drawn by the policy as it stands."""
        return 0.0

    def _explored(self, num_steps: int, visible: int | None = None) -> tuple[int, int]:
        """Steps [first, last) of which any may be trained."""
        window = self.config.window
        if window.kind == "all":
            return 0, max(1, int(num_steps * self.config.timestep_fraction))
        return window_range(asdict(window), num_steps, visible)

    def _step(
        self, x_t: Tensor, velocity: Tensor, sigma: Tensor, sigma_next: Tensor, sigmas: Tensor
    ) -> Step:
        level = self.config.noise_level
        if self.config.solver == "cps":
            return cps_step(x_t, velocity, sigma, sigma_next, noise_level=level)
        return sde_step(
            x_t, velocity, sigma, sigma_next, noise_level=level, sigma_max=float(sigmas[1])
        )

    def _log_prob(self, x_next: Tensor, step: Step) -> Tensor:
        density = unscaled_mean_log_prob if self.config.solver == "cps" else mean_log_prob
        return density(x_next, step)
