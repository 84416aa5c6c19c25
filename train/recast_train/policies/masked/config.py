"""The ``model:`` block of a recipe for masked image models."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from pydantic import ConfigDict

from recast_eval.content import content
from recast_eval.errors import MissingError
from recast_train.policies.sd3.config import LoraBlock
from recast_train.recipe_types import Recipe

TARGETS: Final = ("to_q", "to_k", "to_v", "to_out.0", "ff.net.0.proj", "ff.net.2")
"""Attention and feed-forward projections of every transformer block."""


def _lora() -> LoraBlock:
    return LoraBlock(rank=16, alpha=32.0, targets=TARGETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedConfig:
    """Which model, how it samples, with which adapter."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    base: str = "starter-masked"
    """``starter-masked``, a folder in aMUSEd's layout, or a hub id."""
    temperature: float = 1.0
    """Divides the logits, in rollouts and log-probabilities alike."""
    choice_temperature: tuple[float, float] = (2.0, 0.0)
    """Order ``confidence``: weight of the Gumbel noise on the first and the last step."""
    lora: LoraBlock = field(default_factory=_lora)

    def problems(self) -> Iterator[str]:
        """What is out of range."""
        if not self.base:
            yield "base: must name the starter, a folder or a hub id"
        if self.temperature <= 0:
            yield f"temperature: must be positive, got {self.temperature}"
        if min(self.choice_temperature) < 0:
            yield f"choice_temperature: must not be negative, got {self.choice_temperature}"
        if self.lora.rank < 1:
            yield f"lora.rank: must be 1 or more, got {self.lora.rank}"
        if self.lora.alpha <= 0:
            yield f"lora.alpha: must be positive, got {self.lora.alpha}"
        if not self.lora.targets:
            yield "lora.targets: must name one module or more"

    def clashes(self, recipe: Recipe) -> Iterator[str]:
        """What does not fit the rest of the recipe: more steps than a picture has tokens."""
        tokens = _tokens(self.base)
        if tokens is not None and recipe.sampler.steps > tokens:
            yield f"base: {too_many_steps(tokens, recipe.sampler.steps)}"


def too_many_steps(tokens: int, steps: int) -> str:
    """Why more steps than tokens are refused: some would decode nothing, at equal noise levels."""
    return f"sampler.steps: must be at most the {tokens} tokens of a picture, got {steps}"


def _tokens(base: str) -> int | None:
    """Tokens of a picture, if a model on this disk says; loading one says it too."""
    try:
        place = content("train/starter-masked") if base == "starter-masked" else Path(base)
        side = json.loads((place / "transformer" / "config.json").read_text("utf-8"))["sample_size"]
        return int(side) ** 2
    except (MissingError, OSError, ValueError, KeyError, TypeError):
        return None
