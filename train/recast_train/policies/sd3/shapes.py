"""SD3.5-Medium's shape as data, and a transformer of any shape without its weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.nn import Module

SD35_MEDIUM: Final[dict[str, Any]] = {
    "sample_size": 128,
    "patch_size": 2,
    "in_channels": 16,
    "out_channels": 16,
    "num_layers": 24,
    "attention_head_dim": 64,
    "num_attention_heads": 24,
    "joint_attention_dim": 4096,
    "caption_projection_dim": 1536,
    "pooled_projection_dim": 2048,
    "pos_embed_max_size": 384,
    "dual_attention_layers": list(range(13)),
    "qk_norm": "rms_norm",
}
"""``transformer/config.json`` of stabilityai/stable-diffusion-3.5-medium."""
CLIP_TOKENS: Final = 77


@dataclass(frozen=True, slots=True)
class Shape:
    """What memory and time depend on."""

    width: int
    blocks: int
    dual: int
    """Blocks with a second attention over image tokens alone."""
    parameters: int
    lora: int
    """Parameters of one adapter."""
    lora_modules: int


def meta_transformer(config: Mapping[str, Any]) -> Module:
    """The real class at full size, without storage.

    Args:
        config: As in ``transformer/config.json``.
    """
    from diffusers import SD3Transformer2DModel

    with torch.device("meta"):
        model: Module = SD3Transformer2DModel.from_config(dict(config))
    return model


def measure_shape(transformer: Module, rank: int, targets: tuple[str, ...]) -> Shape:
    """Count a transformer's parameters, and those that LoRA would add to it.

    Args:
        transformer: An ``SD3Transformer2DModel``, may be on the meta device.
        rank: Of the adapter.
        targets: Module names, or endings of them, as PEFT matches them.
    """
    config: Any = transformer.config
    hit = [
        module
        for name, module in transformer.named_modules()
        if any(name == t or name.endswith("." + t) for t in targets)
    ]
    ends: list[Any] = [m for m in hit if isinstance(m, torch.nn.Linear)]
    return Shape(
        width=config.num_attention_heads * config.attention_head_dim,
        blocks=config.num_layers,
        dual=len(config.dual_attention_layers),
        parameters=sum(p.numel() for p in transformer.parameters()),
        lora=sum(rank * (m.in_features + m.out_features) for m in ends),
        lora_modules=len(ends),
    )
