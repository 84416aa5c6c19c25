"""The parts of a recipe: frozen dataclasses, each key documented where it is declared."""

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator, ConfigDict

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
"""Give it to a recipe block as ``__pydantic_config__``: unknown keys and NaN are errors."""


def truths_for_numbers(kind: Any, value: Any, path: str = "") -> Iterator[str]:
    """Where YAML's ``yes`` or ``true`` stands for a number, of which it would make 1.

    Args:
        kind: A dataclass, or the annotation of a key.
        value: What YAML gives for it.
        path: Of the key.
    """
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if isinstance(value, bool):
        if {int, float} & set(options) and bool not in options:
            yield f"{path}: must be a number, got {value} (yes, on and true are no numbers)"
    elif isinstance(value, Mapping):
        for option in options:
            own = get_type_hints(option) if is_dataclass(option) else {}
            each = get_args(option)[1] if get_origin(option) is dict else Any
            for key, inner in value.items():
                place = f"{path}.{key}" if path else str(key)
                yield from truths_for_numbers(own.get(key, each), inner, place)
    elif isinstance(value, list):
        for option in options:
            inner = [a for a in get_args(option) if a is not Ellipsis]
            for i, item in enumerate(value if inner else []):
                yield from truths_for_numbers(inner[min(i, len(inner) - 1)], item, f"{path}.{i}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerConfig:
    """How images are drawn while training."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    steps: int = 10
    """T, solver steps from noise to image; also the noise levels that are trained on."""
    guidance_scale: float = 1.0
    """Classifier-free guidance weight; 1 is none, as DiffusionNFT is CFG-free."""
    solver: str = ""
    """The policy's solver; empty is its first one. A method that needs its own says so."""
    shift: float | None = None
    """Timestep shift; None is the base model's."""
    rollout_batch: int = 0
    """Images a forward of the rollout, over all processes; 0 draws an epoch in one."""
    precision: Literal["", "fp32", "bf16"] = ""
    """Of the rollout's forwards alone; empty is the recipe's. Updates that train on noised
    samples (nft, awm) do not care how these were drawn; measure whether it is faster."""

    def problems(self) -> Iterator[str]:
        """What is out of range."""
        if self.steps < 1:
            yield f"sampler.steps: must be 1 or more, got {self.steps}"
        if self.guidance_scale < 0:
            yield f"sampler.guidance_scale: must not be negative, got {self.guidance_scale}"
        if self.shift is not None and self.shift <= 0:
            yield f"sampler.shift: must be positive, got {self.shift}"
        if self.rollout_batch < 0:
            yield f"sampler.rollout_batch: must not be negative, got {self.rollout_batch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptsConfig:
    """Which captions are trained on."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    set: str
    """Name of a set under ``prompts/sets``, or a file of prompts."""
    split: Literal["train", "validation", "test"] = "train"
    also: tuple[str, ...] = ()
    """More sets, of the same split; all are shuffled together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsConfig:
    """How many images of how many prompts an epoch draws."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    prompts_per_epoch: int
    group_size: int
    """G, images of one prompt; advantages compare them with each other."""

    def problems(self) -> Iterator[str]:
        """What is out of range."""
        if self.prompts_per_epoch < 1:
            yield f"groups.prompts_per_epoch: must be 1 or more, got {self.prompts_per_epoch}"
        if self.group_size < 2:
            yield f"groups.group_size: must be 2 or more, got {self.group_size}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardConfig:
    """One reward and how much it is wanted."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    budget: float
    """lambda_k; budgets are normalised to sum to 1."""
    scale: float = 1.0
    """Multiplies the value where raw rewards are mixed (mode ``pre``), e.g. 1/26 for PickScore."""
    weights: str | None = None
    """Folder or hub id instead of the scorer's own weights."""
    device: str = ""
    """Where it runs; empty is the policy's device."""


def _reward(value: Any) -> Any:
    number = isinstance(value, int | float | str) and not isinstance(value, bool)
    return {"budget": value} if number else value


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageConfig:
    """From rewards to advantages."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    scale: Literal["group", "batch"] = "group"
    """Divide by the deviation within the prompt's group, or over the whole epoch."""
    eps: float = 1e-4
    """The least deviation that is divided by, in reward units."""
    clip: float = 5.0
    """Per-reward advantages are cut to +-clip in mode ``loss``, as its q(A_k) is."""
    rms_match: bool = False
    """Scale all advantages by one constant, so that W cannot act as a learning rate."""

    def problems(self) -> Iterator[str]:
        """What is out of range."""
        if self.eps <= 0:
            yield f"advantage.eps: must be positive, got {self.eps}"
        if self.clip <= 0:
            yield f"advantage.clip: must be positive, got {self.clip}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserConfig:
    """AdamW and the gradient's limit."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    learning_rate: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 1e-4
    max_grad_norm: float = 1.0

    def problems(self) -> Iterator[str]:
        """What is out of range."""
        if self.learning_rate <= 0:
            yield f"optimiser.learning_rate: must be positive, got {self.learning_rate}"
        if not all(0 <= b < 1 for b in self.betas):
            yield f"optimiser.betas: must be in [0, 1), got {list(self.betas)}"
        if self.eps <= 0:
            yield f"optimiser.eps: must be positive, got {self.eps}"
        if self.weight_decay < 0:
            yield f"optimiser.weight_decay: must not be negative, got {self.weight_decay}"
        if self.max_grad_norm <= 0:
            yield f"optimiser.max_grad_norm: must be positive, got {self.max_grad_norm}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbesConfig:
    """What an epoch shows to a credit that learns."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    steps: int = 8
    """Noise levels looked at, spread over the grid."""
    groups: int = 0
    """Prompt groups looked at; 0 is all of the epoch."""

    def problems(self) -> Iterator[str]:
        """What is out of range."""
        if self.steps < 1:
            yield f"probes.steps: must be 1 or more, got {self.steps}"
        if self.groups < 0:
            yield f"probes.groups: must not be negative, got {self.groups}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that changes the numbers of a run. Where it is written does not."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    name: str
    seed: int
    model: dict[str, Any]
    """``kind`` (``sd3``, ``masked``) and that policy's own keys: base, lora, resolution ..."""
    prompts: PromptsConfig
    groups: GroupsConfig
    rewards: dict[str, Annotated[RewardConfig, BeforeValidator(_reward)]]
    method: dict[str, Any]
    """``kind`` (``nft``, ...) and that method's switches."""
    epochs: int
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    heldout: tuple[str, ...] = ()
    """Judges that this run promises not to train on."""
    allow_shared_family: str = ""
    """Why a reward may share a model family with a held-out judge; empty: it may not."""
    credit: dict[str, Any] = field(default_factory=dict)
    """``kind`` (``static`` if absent) and its switches."""
    mode: Literal["advantage", "pre", "loss"] = "advantage"
    """Where W enters: per-reward advantages, raw rewards, or per-reward losses."""
    aggregator: dict[str, Any] = field(default_factory=dict)
    """``kind`` (``weighted-sum`` if absent) and its switches."""
    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    probes: ProbesConfig = field(default_factory=ProbesConfig)
    steps_per_epoch: int = 1
    """Optimiser steps that an epoch's images are split into."""
    micro_batch: int = 8
    """Samples a forward-backward."""
    precision: Literal["fp32", "bf16"] = "fp32"
    threads: int = 0
    """Torch threads; 0 leaves the environment's."""
    ema_ceiling: float = 0.9
    """Evaluated weights follow the trained ones with decay min((1+s)/(10+s), this); 0: equal."""
    checkpoint_every: int = 10
    """Epochs; the last epoch always leaves one."""
    keep_checkpoints: int = 3
    """Older ones are removed; 0 keeps all."""
    samples_every: int = 10
    """Epochs between picture grids; 0 draws none."""
    sample_prompts: int = 16

    def problems(self) -> Iterator[str]:
        """What is out of range, all of it."""
        for part in (self.sampler, self.groups, self.advantage, self.optimiser, self.probes):
            yield from part.problems()
        yield from self._counts()
        yield from self._budgets()
        if not 0 <= self.ema_ceiling < 1:
            yield f"ema_ceiling: must be in [0, 1), got {self.ema_ceiling}"
        images = self.groups.prompts_per_epoch * self.groups.group_size
        if self.steps_per_epoch > max(images, 1):
            yield f"steps_per_epoch: {self.steps_per_epoch} is more than the {images} images"

    def _counts(self) -> Iterator[str]:
        for key in ("epochs", "steps_per_epoch", "micro_batch", "checkpoint_every"):
            if getattr(self, key) < 1:
                yield f"{key}: must be 1 or more, got {getattr(self, key)}"
        for key in ("seed", "threads", "keep_checkpoints", "samples_every", "sample_prompts"):
            if getattr(self, key) < 0:
                yield f"{key}: must not be negative, got {getattr(self, key)}"
        if self.samples_every > 0 and self.sample_prompts == 0:
            yield "sample_prompts: must be 1 or more, or samples_every 0, got 0"

    def _budgets(self) -> Iterator[str]:
        for name, reward in self.rewards.items():
            if reward.budget < 0:
                yield f"rewards.{name}: a budget must not be negative, got {reward.budget}"
            if reward.scale <= 0:
                yield f"rewards.{name}.scale: must be positive, got {reward.scale}"
        if not self.rewards:
            yield "rewards: needs one reward or more"
        elif all(r.budget == 0 for r in self.rewards.values()):
            yield "rewards: all budgets are 0; at least one must be positive"
        elif sum(r.budget for r in self.rewards.values()) == float("inf"):
            yield "rewards: the budgets are too large, their sum must be finite"
