"""Reward ``tidy``: things in one piece and one colour, no stray squares. A rule, no weights.

For pictures made of palette squares (the masked starter's), where every fill is flat and
``finish`` is 1 for all. Decided late: one wrong square is a speck. Blind to the caption.
"""

from typing import Final

import numpy as np
from scipy import ndimage

from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import ScorerCard, ScorerSpec
from recast_eval.scorers.each import EachScorer
from recast_eval.scorers.world import BACKGROUNDS, COLORS

CARD: Final = ScorerCard(
    name="tidy",
    version=1,
    family="square-tidiness",
    what="the squares of each thing are one colour and hang together, none is stray",
    unit="share of a tidy card",
    low=0.0,
    high=1.0,
    source="rule of this project",
    licence="Apache-2.0",
    preprocessing="16 x 16 squares, nearest palette colour of each square's mean",
)
_PALETTE: Final = np.array([*COLORS.values(), *BACKGROUNDS.values()], np.float64)
_GRID: Final = 16
_PIECE: Final = 5  # squares of the smallest thing; fewer are specks
_INK: Final = (0.04, 0.5, 0.75)  # share of a card: enough, still fine, too much
_CROSS: Final = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])


def to_squares(pixels: np.ndarray) -> np.ndarray:
    """Palette index (16, 16) of each square of a picture whose sides are multiples of 16.

    Raises:
        ValueError: They are not.
    """
    height, width = pixels.shape[0] // _GRID, pixels.shape[1] // _GRID
    if pixels.shape[:2] != (height * _GRID, width * _GRID) or not height * width:
        raise ValueError(f"sides must be multiples of {_GRID} pixels, got {pixels.shape[:2]}")
    mean = pixels.reshape(_GRID, height, _GRID, width, 3).mean((1, 3))
    squares: np.ndarray = ((mean[:, :, None] - _PALETTE) ** 2).sum(-1).argmin(-1)
    return squares


def _score(pixels: np.ndarray, prompt: str) -> Scored | Failed:
    del prompt
    try:
        squares = to_squares(pixels)
    except ValueError as error:
        return Failed(reason="not_applicable", detail=str(error))
    border = np.concatenate([squares[0], squares[-1], squares[:, 0], squares[:, -1]])
    ink = squares != np.bincount(border).argmax()
    count = max(int(ink.sum()), 1)
    labels, pieces = ndimage.label(ink)
    solid = 0
    for piece in range(1, pieces + 1):
        colors = np.bincount(squares[labels == piece])
        solid += int(colors.max()) if colors.sum() >= _PIECE else 0
    held = np.zeros(ink.shape, int)  # neighbours of the same colour
    for color in np.unique(squares[ink]):
        own = squares == color
        held += own * ndimage.convolve(own.astype(int), _CROSS, mode="constant")
    smooth = float((held[ink] >= 2).sum()) / count
    enough, fine, most = _INK
    share = ink.mean()
    present = float(np.clip(share / enough, 0, 1) * np.clip((most - share) / (most - fine), 0, 1))
    detail = {"present": present, "solid": solid / count, "smooth": smooth}
    value = present * detail["solid"] * (0.5 + 0.5 * smooth)
    return Scored(
        value=float(np.clip(value, 0, 1)), detail={k: round(v, 4) for k, v in detail.items()}
    )


def _build(*, device: str = "cpu", weights: str | None = None) -> EachScorer:
    del device, weights  # a rule runs where its arrays are
    return EachScorer(CARD, _score)


SPEC: Final = ScorerSpec(CARD, _build)
