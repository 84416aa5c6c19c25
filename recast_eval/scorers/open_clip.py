"""An open_clip checkpoint for transformers: names of tensors, and pictures made square."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
DEVIATION: Final = (0.26862954, 0.26130258, 0.27577711)
"""Of OpenAI's training pictures, red, green, blue."""

_BLOCK: Final = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}
_TOP: Final = {
    "logit_scale": "logit_scale",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "ln_final": "text_model.final_layer_norm",
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.ln_pre": "vision_model.pre_layrnorm",
    "visual.ln_post": "vision_model.post_layernorm",
}


def _rename(name: str) -> str:
    for old, new in _TOP.items():
        if name == old or name.startswith(old + "."):
            return new + name[len(old) :]
    tower, prefix = (
        ("vision_model", "visual.transformer.resblocks.")
        if name.startswith("visual.")
        else ("text_model", "transformer.resblocks.")
    )
    if not name.startswith(prefix):
        raise ValueError(f"{name!r} is no tensor of an open_clip ViT")
    layer, rest = name.removeprefix(prefix).split(".", 1)
    for old, new in _BLOCK.items():
        if rest.startswith(old + "."):
            return f"{tower}.encoder.layers.{layer}.{new}{rest[len(old) :]}"
    raise ValueError(f"{name!r} is no tensor of an open_clip ViT")


def convert_open_clip(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """State dict of open_clip's ViT CLIP to that of ``transformers.CLIPModel``.

    Fused attention projections are split in three, final projections transposed.

    Raises:
        ValueError: A name belongs to no such model.
    """
    found: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if name == "attn_mask":
            continue
        if name in ("text_projection", "visual.proj"):
            target = "text_projection" if name == "text_projection" else "visual_projection"
            found[f"{target}.weight"] = value.T.contiguous()
        elif ".attn.in_proj_" in name:
            stem, kind = name.split(".attn.in_proj_")
            base = _rename(f"{stem}.attn.out_proj.{kind}").removesuffix(f"out_proj.{kind}")
            for part, chunk in zip("qkv", torch.chunk(value, 3), strict=True):
                found[f"{base}{part}_proj.{kind}"] = chunk.contiguous()
        else:
            found[_rename(name)] = value
    return found


class PaddedSquare:
    """Pictures whole, the longer side resized and black bars beside the shorter one, none cut.

    Called as transformers calls its image processors.

    Args:
        side: Of the square, in pixels.
    """

    def __init__(self, side: int) -> None:
        self.side = side

    def __call__(self, images: Sequence[Any], return_tensors: str = "pt") -> dict[str, Tensor]:
        """Normalised floats (N, 3, side, side) under ``pixel_values``."""
        del return_tensors  # tensors, always
        mean, deviation = (torch.tensor(v).view(3, 1, 1) for v in (MEAN, DEVIATION))
        squares = torch.stack([self._square(np.asarray(image)) for image in images])
        return {"pixel_values": (squares - mean) / deviation}

    def _square(self, pixels: np.ndarray) -> Tensor:
        picture = torch.from_numpy(np.array(pixels)).permute(2, 0, 1)[None].float() / 255
        scale = self.side / max(picture.shape[2:])
        height, width = (max(1, round(n * scale)) for n in picture.shape[2:])
        if (height, width) != tuple(picture.shape[2:]):
            picture = functional.interpolate(
                picture, (height, width), mode="bicubic", antialias=True
            )
        down, right = self.side - height, self.side - width
        bars = (right // 2, right - right // 2, down // 2, down - down // 2)
        return functional.pad(picture[0], bars)
