"""The ``model:`` block of a recipe for SD3."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final

from pydantic import ConfigDict

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)

ATTENTION: Final = (
    "attn.to_q",
    "attn.to_k",
    "attn.to_v",
    "attn.to_out.0",
    "attn.add_q_proj",
    "attn.add_k_proj",
    "attn.add_v_proj",
    "attn.to_add_out",
)
"""The eight projections of a joint block's attention, as DiffusionNFT and Flow-GRPO train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraBlock:
    """The trained low-rank change."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    rank: int = 32
    alpha: float = 64.0
    """The change is ``alpha / rank * B A``."""
    targets: tuple[str, ...] = ATTENTION
    """Module names, or endings of them."""
    continue_from: str | None = None
    """Folder of an adapter to start from, e.g. an earlier run's ``adapter/``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sd3Config:
    """Which pipeline, at what size, with which adapter."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    base: str = "starter"
    """``starter``, a folder, or a hub id."""
    resolution: int | None = None
    """Pixels, height and width; None is the pipeline's own."""
    max_sequence_length: int = 128
    """T5 tokens (zeros where there is no T5)."""
    lora: LoraBlock = field(default_factory=LoraBlock)
    gradient_checkpointing: bool = False
    """Recompute blocks in the backward pass: a block's activations instead of all, for one more
    forward."""
    decode_batch: int = 32
    """Latents that the VAE decodes at once; 1 is what diffusers calls slicing."""
    text_device: str = ""
    """Where prompts are encoded, each once; empty is the policy's device, ``cpu`` saves 11 GB."""

    def problems(self) -> Iterator[str]:
        """What is out of range."""
        if not self.base:
            yield "base: must name the starter, a folder or a hub id"
        if self.lora.rank < 1:
            yield f"lora.rank: must be 1 or more, got {self.lora.rank}"
        if self.lora.alpha <= 0:
            yield f"lora.alpha: must be positive, got {self.lora.alpha}"
        if self.decode_batch < 1:
            yield f"decode_batch: must be 1 or more, got {self.decode_batch}"
        if not self.lora.targets:
            yield "lora.targets: must name one module or more"
        if self.max_sequence_length < 1:
            yield f"max_sequence_length: must be 1 or more, got {self.max_sequence_length}"
        if self.resolution is not None and self.resolution < 16:
            yield f"resolution: must be 16 pixels or more, got {self.resolution}"
