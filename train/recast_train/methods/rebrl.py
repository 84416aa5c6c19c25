"""RebRL and its relatives: policy gradients for masked diffusion, one file for all weightings.

A step of the credit matrix is a stage: the state before decoding step j. The estimator has a
stage credit C of its own, which is the column mass that W is solved for; a pair (sample,
stage) therefore carries ``a / C``, and ``T * W`` in the advantage brings C back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from pydantic import ConfigDict
from torch import Generator, Tensor
from torch.nn import Parameter

from recast_train.methods.base import Loss, MethodSpec, Outputs, Work
from recast_train.policies.base import Condition, Policy, Rollout, Who
from recast_train.rebrl import (
    PRESETS,
    RebalanceConfig,
    column_mass,
    draw_stages,
    preset,
    rebalanced_kl,
    rebalanced_loss,
)


class MaskedPolicy(Policy, Protocol):
    """What this method needs of a masked policy."""

    counts: Any
    """(T+1,) masked tokens before each step, and 0."""

    @property
    def on_policy(self) -> bool:
        """Whether old and new are the same numbers."""
        ...

    def log_probs(self, tokens: Tensor, masks: Tensor, condition: Condition, *, who: Who) -> Tensor:
        """Log-probability of each token (B, N), those in ``masks`` hidden."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RebrlConfig:
    """The recipe's ``method:`` block: a preset, what differs from it, and the trust region."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    preset: str = "rebrl"
    """``unigrpo``, ``maskgrpo``, ``diffu-grpo``, ``coupled``, ``mask-grpo``, ``rebrl1``,
    ``rebrl2``, ``rebrl-token`` or ``rebrl``. The keys up to ``sampling`` override it."""
    estimator: Literal["masked", "trajectory", "full", "coupled"] | None = None
    stage_power: float | None = None
    token: Literal["none", "inv_freq", "exact"] | None = None
    masks: Literal["rollout", "shared_uniform", "independent"] | None = None
    min_share: float | None = None
    stage_balance: float | None = None
    normalize: Literal["mean1", "none"] | None = None
    stages_per_update: int | None = None
    sampling: Literal["uniform", "lambda"] | None = None
    clip: tuple[float, float] = (0.2, 0.2)
    """How far a ratio may fall below and rise above 1."""
    ratio: Literal["token", "sequence"] = "token"
    """A ratio a token, or one a stage with the weights in its exponent."""
    beta: float = 0.02
    """Weight of the KL to the base model; 0 skips its forward."""
    stage_norms: bool = False
    """Log the gradient norm of each stage: one more backward each, for studies."""

    def problems(self) -> Iterator[str]:
        """What is out of range."""
        if min(self.clip) < 0:
            yield f"clip: must not be negative, got {self.clip}"
        if self.beta < 0:
            yield f"beta: must not be negative, got {self.beta}"
        if self.preset not in PRESETS:
            yield f"preset: must be one of {', '.join(PRESETS)}, got {self.preset!r}"
            return
        try:
            self.weighting()
        except ValueError as error:
            yield from str(error).splitlines()

    def weighting(self) -> RebalanceConfig:
        """The preset with this block's changes.

        Raises:
            ValueError: They do not fit together.
        """
        names = RebalanceConfig.__dataclass_fields__
        changes = {k: getattr(self, k) for k in names if getattr(self, k) is not None}
        return preset(self.preset, **changes)


class Rebrl:
    """The method; see ``recast_train.methods.base.Method``."""

    policy_kind = "masked"

    def __init__(self, config: RebrlConfig) -> None:
        self.config, self.weighting = config, config.weighting()
        self.rollout_plan: dict[str, Any] = {}
        self._parameters: list[Parameter] = []

    def works(
        self, rollout: Rollout, num_steps: int, micro_batch: int, generator: Generator
    ) -> Iterator[Work]:
        """Every sample at every stage that the estimator uses; an item has one stage.

        ``noise`` carries the masks and weights of the pairs, (B, 2, tokens).
        """
        counts = rollout.trace["counts"][0].cpu().numpy()
        stages = draw_stages(rollout.trace["decode_step"], counts, self.weighting, generator)
        count = len(rollout.x_0)
        for s, step in enumerate(stages.steps.tolist()):
            used = stages.weights[:, s].any(-1).nonzero()[:, 0]
            for first in range(0, len(used), micro_batch):
                rows = used[first : first + micro_batch]
                pair = torch.stack([stages.masks[rows, s].float(), stages.weights[rows, s]], 1)
                yield Work(rows, torch.full_like(rows, step), pair, len(rows) / (count * num_steps))

    def outputs(self, policy: MaskedPolicy, rollout: Rollout, work: Work) -> Outputs:
        """Log-probabilities of the rollout's tokens while the stage's are hidden."""
        tokens = rollout.x_0[work.rows]
        hidden, weights = _given(work.noise).to(tokens.device).unbind(1)
        condition, masks = rollout.condition.take(work.rows), hidden.bool()
        new = policy.log_probs(tokens, masks, condition, who="new")
        if policy.on_policy:
            old = new.detach()
        else:
            old = policy.log_probs(tokens, masks, condition, who="old")
        mass = torch.from_numpy(column_mass(policy.counts, self.weighting)).float()
        found = {"new": new, "old": old, "weights": weights}
        found |= {"steps": work.steps, "mass": mass}
        found["decode_step"] = rollout.trace["decode_step"][work.rows]
        if self.config.beta > 0:
            found["reference"] = policy.log_probs(tokens, masks, condition, who="reference")
        self._parameters = policy.parameters() if self.config.stage_norms else []
        return Outputs(found)

    def loss(self, outputs: Outputs, advantage: Tensor) -> Loss:
        """The clipped policy gradient; ``advantage`` holds ``T W``, the weights ``a / C``.

        Raises:
            ValueError: The stage was drawn and has no credit: 0 / 0 would train on NaN.
        """
        found = outputs.tensors
        step = int(found["steps"][0])
        if not found["mass"][step] > 0:
            raise ValueError(
                f"stage {step} was drawn, and the stage credit of {self.weighting} is 0"
            )
        scaled = advantage.to(found["new"].device, torch.float32) / found["mass"][step]
        result = rebalanced_loss(
            found["new"],
            found["old"],
            scaled,
            found["weights"],
            clip=self.config.clip,
            ratio=self.config.ratio,
        )
        logs = _diagnostics(found) | {f"rebrl/clip_fraction_{step:02d}": result.clip_fraction}
        logs["rebrl/clip_fraction"] = result.clip_fraction
        if self._parameters:
            parts = torch.autograd.grad(result.loss, self._parameters, retain_graph=True)
            norm = torch.stack([p.square().sum() for p in parts]).sum().sqrt()
            logs[f"rebrl/gradient_norm_{step:02d}"] = norm
        return Loss(result.loss, _by_step(logs, len(found["mass"])))

    def penalty(self, outputs: Outputs) -> Loss:
        """Weighted KL to the base model, summed over the stages like the reward part."""
        found = outputs.tensors
        if "reference" not in found:
            return Loss(found["new"].new_zeros(()), {})
        stages = len(found["mass"])
        kl = stages * rebalanced_kl(found["new"], found["reference"], found["weights"])
        return Loss(self.config.beta * kl, {"kl": kl.detach(), "rebrl/kl": _plain_kl(found)})

    def column_mass(self, rollout_masks: Tensor | None, num_steps: int) -> list[float] | None:
        """The estimator's stage credit.

        Args:
            rollout_masks: (T, N) masks with the schedule's counts.
            num_steps: T.

        Raises:
            ValueError: There are no masks, or not T of them.
        """
        if rollout_masks is None or len(rollout_masks) != num_steps:
            raise ValueError(f"the stage credit of {num_steps} steps needs the policy's masks")
        counts = [*rollout_masks.sum(-1).tolist(), 0]
        return [float(c) for c in column_mass(counts, self.weighting)]

    def step_density(self, sigmas: Tensor, epochs: int) -> np.ndarray | None:
        """None: a stage that is drawn seldom counts for more."""
        return None

    def old_decay(self, step: int, epoch: int) -> float:
        """0: the old policy is the new one."""
        return 0.0


def _given(noise: Tensor | None) -> Tensor:
    if noise is None:
        raise ValueError("work of rebrl carries masks and weights; this item has none")
    return noise


def _plain_kl(found: dict[str, Tensor]) -> Tensor:
    """Mean KL a masked token, whatever the weights: comparable between estimators."""
    used = (found["weights"] > 0).float()
    with torch.no_grad():
        total = rebalanced_kl(found["new"], found["reference"], used)
        return total * used.shape[1] / used.sum(-1).mean().clamp_min(1)


def _diagnostics(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """This stage's credit, and its part of the token weight of each decode group."""
    weights, group = found["weights"], found["decode_step"]
    steps, step = len(found["mass"]), int(found["steps"][0])
    logs = {f"rebrl/stage_credit_{step:02d}": weights.mean()}
    total = torch.zeros(steps).index_add_(0, group.flatten().cpu(), weights.flatten().cpu())
    size = torch.bincount(group.flatten().cpu(), minlength=steps).clamp_min(1)
    for j, value in enumerate(total / size):
        logs[f"rebrl/token_weight_{j:02d}"] = value
    return logs


def _by_step(logs: dict[str, Tensor], steps: int) -> dict[str, Tensor]:
    """The loop averages over all stages: what belongs to one stage is scaled to be its own."""
    return {k: v * steps if k[-2:].isdigit() else v for k, v in logs.items()}


METHOD = MethodSpec(
    name="rebrl",
    policy_kind="masked",
    config=RebrlConfig,
    build=Rebrl,
    summary="policy gradients for masked diffusion, credit rebalanced over stages and tokens",
    reference="Zhang et al. 2026, RebRL, CVPR 2026; Mask-GRPO arXiv 2510.13418; d1 2504.12216",
)
