"""Load aMUSEd's parts from a folder or the hub. ``AmusedPipeline`` is deprecated: not used."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from recast_eval.content import content
from recast_eval.errors import ConfigError
from recast_train.policies.masked.codec import Codec, PaletteCodec, VqCodec


@dataclass(frozen=True, slots=True)
class Parts:
    """A masked image model."""

    transformer: Any
    text_encoder: Any
    tokenizer: Any
    scheduler: Any
    codec: Codec


def load_parts(base: str, dtype: torch.dtype, device: torch.device) -> Parts:
    """Load transformer, text encoder, tokenizer, scheduler, and palette or VQ model.

    Args:
        base: ``starter-masked``, a folder, or a hub id such as ``amused/amused-256``.
        dtype: Of the transformer and the text encoder.
        device: Where they go.

    Raises:
        ConfigError: A part is missing or of another kind.
        MissingError: The starter is not installed.
    """
    from diffusers import AmusedScheduler, UVit2DModel, VQModel
    from transformers import CLIPTextModelWithProjection, CLIPTokenizer

    place = str(content("train/starter-masked")) if base == "starter-masked" else base
    try:
        transformer = UVit2DModel.from_pretrained(
            place, subfolder="transformer", torch_dtype=dtype, use_safetensors=True
        )
        text = CLIPTextModelWithProjection.from_pretrained(
            place, subfolder="text_encoder", dtype=dtype, use_safetensors=True
        )
        tokenizer = CLIPTokenizer.from_pretrained(place, subfolder="tokenizer")
        scheduler = AmusedScheduler.from_pretrained(place, subfolder="scheduler")
        grid = transformer.config.sample_size
        palette = Path(place) / "palette.json"
        codec: Codec
        if palette.is_file():
            codec = PaletteCodec(palette, grid)
        else:
            vq = VQModel.from_pretrained(place, subfolder="vqvae", use_safetensors=True)
            codec = VqCodec(vq.to(device), grid)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError([f"model.base: cannot load {place}: {error}"]) from error
    return Parts(
        transformer.to(device).eval(),
        text.to(device).eval().requires_grad_(False),
        tokenizer,
        scheduler,
        codec,
    )
