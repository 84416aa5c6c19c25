"""Reward ``finish``: clean edges and flat fills. A rule, no weights, blind to the caption.

Bounded from below by what must be there: where nothing is drawn, nothing is finished.
"""

from typing import Final

import numpy as np
from scipy import ndimage

from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import ScorerCard, ScorerSpec
from recast_eval.scorers.each import EachScorer
from recast_eval.scorers.world import BACKGROUNDS, COLORS
from recast_eval.scorers.world.parts import to_lab

CARD: Final = ScorerCard(
    name="finish",
    version=1,
    family="flat-fill",
    what="fills are flat palette colours, edges are one pixel wide, no speckle, no grey mush",
    unit="share of a clean card",
    low=0.0,
    high=1.0,
    source="rule of this project",
    licence="Apache-2.0",
    preprocessing="CIELAB distance to the palette, 3x3 neighbourhoods",
)
_NEAR: Final = 9.0  # CIELAB distance at which a fill loses 40 % of its credit
_INK: Final = 0.035  # share of a card that the thinnest picture asked for covers
_PALETTE: Final = to_lab(np.array([*BACKGROUNDS.values(), *COLORS.values()]))
_SQUARE: Final = np.ones((3, 3), bool)


def _score(pixels: np.ndarray, prompt: str) -> Scored | Failed:
    del prompt
    lab = to_lab(pixels)
    distance = np.linalg.norm(lab[..., None, :] - _PALETTE, axis=-1)
    closeness = np.exp(-0.5 * (distance.min(-1) / _NEAR) ** 2)
    edge = np.concatenate([lab[0], lab[-1], lab[:, 0], lab[:, -1]])
    back = _PALETTE[np.linalg.norm(_PALETTE[:4] - np.median(edge, axis=0), axis=-1).argmin()]
    ink = np.linalg.norm(lab - back, axis=-1) > 22
    rim = ndimage.binary_dilation(ink, _SQUARE) & ~ndimage.binary_erosion(ink, _SQUARE)
    ground, inside = ~ink & ~rim, ink & ~rim
    flat = [float(closeness[area].mean()) if area.any() else 0.0 for area in (ground, inside)]
    # An edge pixel is a mix of two fills: on a clean edge few pixels are near neither.
    length = max(float((ink & rim).sum()), 1.0)
    crisp = float(np.clip(1.6 - (closeness[rim] < 0.5).sum() / length, 0, 1))
    labels, _ = ndimage.label(ink)
    sizes = np.bincount(labels.ravel())[1:]
    clean = float(1 / (1 + (sizes < 10).sum() / 6))
    present = float(np.clip(ink.mean() / _INK, 0, 1))
    value = present * clean * (0.35 * flat[0] + 0.35 * flat[1] + 0.3 * crisp)
    detail = {"ground": flat[0], "fill": flat[1], "edges": crisp, "specks": clean, "ink": present}
    return Scored(
        value=float(np.clip(value, 0, 1)), detail={k: round(v, 4) for k, v in detail.items()}
    )


def _build(*, device: str = "cpu", weights: str | None = None) -> EachScorer:
    del device, weights  # a rule runs where its arrays are
    return EachScorer(CARD, _score)


SPEC: Final = ScorerSpec(CARD, _build)
