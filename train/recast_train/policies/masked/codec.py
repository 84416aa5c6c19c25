"""Tokens to pictures: palette squares, or a VQ decoder."""

import json
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from recast_eval.errors import DataError

_DECODE_BATCH = 16


class Codec(Protocol):
    """Turns token grids into pictures."""

    image_size: int
    """Side of a picture in pixels."""

    def decode(self, tokens: Int[Tensor, "batch height width"]) -> UInt8[np.ndarray, "..."]:
        """RGB pictures (B, H, W, 3)."""
        ...


class PaletteCodec:
    """Each token is a square of one colour.

    Args:
        path: ``palette.json``: ``cell``, the side of a square in pixels, and ``palette``.
        grid: Tokens a side.

    Raises:
        DataError: The file does not hold a palette.
    """

    def __init__(self, path: Path, grid: int) -> None:
        try:
            found = json.loads(path.read_text("utf-8"))
            self._palette = np.array(found["palette"], dtype=np.uint8)
            self._cell = int(found["cell"])
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise DataError(f"is no palette: {error}", path=path) from error
        if self._palette.ndim != 2 or self._palette.shape[1] != 3 or self._cell < 1:
            raise DataError("needs `palette`, rows of 3 bytes, and `cell` of 1 or more", path=path)
        self.image_size = grid * self._cell

    def decode(self, tokens: Int[Tensor, "batch height width"]) -> UInt8[np.ndarray, "..."]:
        """RGB pictures (B, H, W, 3)."""
        colors = self._palette[tokens.cpu().numpy()]
        picture: np.ndarray = colors.repeat(self._cell, axis=1).repeat(self._cell, axis=2)
        return picture


class VqCodec:
    """A ``diffusers.VQModel``, decoded in float32 (half precision gives NaN there).

    Args:
        model: The VQ model.
        grid: Tokens a side.
    """

    def __init__(self, model: Any, grid: int) -> None:
        self._model = model.float().eval().requires_grad_(False)
        self.image_size = grid * 2 ** (len(model.config.block_out_channels) - 1)

    @torch.no_grad()
    def decode(self, tokens: Int[Tensor, "batch height width"]) -> UInt8[np.ndarray, "..."]:
        """RGB pictures (B, H, W, 3)."""
        starts = range(0, len(tokens), _DECODE_BATCH)
        return np.concatenate([self._some(tokens[i : i + _DECODE_BATCH]) for i in starts])

    def _some(self, tokens: Tensor) -> np.ndarray:
        shape = (*tokens.shape, self._model.config.latent_channels)
        device = next(self._model.parameters()).device
        pixels = self._model.decode(tokens.to(device), force_not_quantize=True, shape=shape).sample
        bytes_ = (pixels.clamp(0, 1) * 255).round().to(torch.uint8)
        picture: np.ndarray = bytes_.permute(0, 2, 3, 1).cpu().numpy()
        return picture
