"""Names of the tensors of Salesforce's BLIP, turned into those of transformers' BLIP."""

import re
from collections.abc import Mapping
from typing import Final

from torch import Tensor

_VISION: Final = {
    "cls_token": "embeddings.class_embedding",
    "pos_embed": "embeddings.position_embedding",
    "patch_embed.proj": "embeddings.patch_embedding",
    "norm": "post_layernorm",
}
_BLOCK: Final = {
    "norm1": "layer_norm1",
    "norm2": "layer_norm2",
    "attn.qkv": "self_attn.qkv",
    "attn.proj": "self_attn.projection",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}


def _vision_name(name: str) -> str:
    if m := re.fullmatch(r"blocks\.(\d+)\.(.+)\.(weight|bias)", name):
        if m[2] in _BLOCK:
            return f"encoder.layers.{m[1]}.{_BLOCK[m[2]]}.{m[3]}"
    elif name in _VISION:
        return _VISION[name]
    elif (parts := name.rpartition("."))[0] in _VISION:
        return f"{_VISION[parts[0]]}.{parts[2]}"
    raise ValueError(f"{name!r} is no tensor of BLIP's image encoder")


def convert_vision(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The image encoder's tensors under ``prefix``, for ``BlipVisionModel``.

    Raises:
        ValueError: A name belongs to no such model.
    """
    return {
        _vision_name(k.removeprefix(prefix)): v for k, v in tensors.items() if k.startswith(prefix)
    }


def convert_text(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The text encoder's tensors under ``prefix``, for ``BlipTextModel``: names agree already."""
    return {
        k.removeprefix(prefix): v
        for k, v in tensors.items()
        if k.startswith(prefix) and not k.endswith("position_ids")
    }
