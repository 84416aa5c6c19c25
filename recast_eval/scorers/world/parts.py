"""Take a card apart: its background, and each thing on it with colour, shape and place.

Used by rewards alone; the held-out verifier sees with other eyes.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from jaxtyping import Bool, Float
from PIL import Image
from scipy import ndimage

from recast_eval.scorers.world.draw import draw_card
from recast_eval.scorers.world.scene import BACKGROUNDS, COLORS, SHAPES, Item, Scene

_CONTRAST: Final = 22.0  # CIELAB distance from the background at which ink begins
_SPECK: Final = 14  # pixels; smaller parts are dirt, not things
_TOLERANCE: Final = 11.0  # CIELAB distance that still counts as about the same colour
_LIKENESS: Final = 0.018  # mean difference of two signatures of about the same shape
_ANGLES, _RADII, _REACH = 48, 12, 1.35


@dataclass(frozen=True, slots=True)
class Part:
    """One connected thing on a card."""

    mask: Bool[np.ndarray, "height width"]
    at: tuple[float, float]
    """Centre (x, y) in pixels."""
    area: int
    color: dict[str, float]
    """How much each palette colour is meant, sums to at most 1."""
    shape: dict[str, float]
    """How much each shape is meant, sums to at most 1."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A card taken apart."""

    background: dict[str, float]
    ink: Bool[np.ndarray, "height width"]
    """Everything that is not background, specks included."""
    things: tuple[Part, ...]
    """From the largest to the smallest."""


def to_lab(pixels: np.ndarray) -> Float[np.ndarray, "*pixels 3"]:
    """Turn sRGB 0-255 into CIELAB (D65), where Euclidean distance is about what an eye sees."""
    rgb = np.asarray(pixels, np.float64) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    matrix = [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
    xyz = linear @ np.array(matrix).T / [0.95047, 1.0, 1.08883]
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.stack(
        [116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], -1
    )


def name_color(lab: np.ndarray, palette: dict[str, tuple[int, int, int]]) -> dict[str, float]:
    """How much each colour of a palette is meant by one CIELAB colour; all small if none is."""
    distance = np.linalg.norm(to_lab(np.array(list(palette.values()))) - lab, axis=-1)
    weight = np.exp(-0.5 * (distance / _TOLERANCE) ** 2)
    weight = weight / (weight.sum() + 0.02)  # far from all: nothing is meant
    return dict(zip(palette, weight.tolist(), strict=True))


def take_apart(pixels: np.ndarray) -> Parts:
    """Find background, ink and things.

    Args:
        pixels: uint8 RGB (H, W, 3); cards of another size are reduced to 64 first.
    """
    if pixels.shape[:2] != (64, 64):
        pixels = np.asarray(Image.fromarray(pixels).resize((64, 64), Image.Resampling.BOX))
    lab = to_lab(pixels)
    edge = np.concatenate([lab[:2].reshape(-1, 3), lab[-2:].reshape(-1, 3)])
    edge = np.concatenate([edge, lab[2:-2, :2].reshape(-1, 3), lab[2:-2, -2:].reshape(-1, 3)])
    back = np.median(edge, axis=0)
    ink = np.linalg.norm(lab - back, axis=-1) > _CONTRAST
    labels, count = ndimage.label(ink)
    found = [
        _part(pixels, lab, back, labels == i + 1, box)
        for i, box in enumerate(ndimage.find_objects(labels, count))
        if box is not None and np.count_nonzero(labels[box] == i + 1) >= _SPECK
    ]
    found.sort(key=lambda part: -part.area)
    return Parts(name_color(back, BACKGROUNDS), ink, tuple(found))


def _part(
    pixels: np.ndarray, lab: np.ndarray, back: np.ndarray, mask: np.ndarray, box: tuple[slice, ...]
) -> Part:
    inside = lab[mask]
    distance = np.linalg.norm(inside - back, axis=-1)
    core = inside[distance >= np.quantile(distance, 0.4)]  # away from smoothed edges
    color = np.median(core, axis=0)
    along = (lab - back) @ (color - back) / max(float((color - back) @ (color - back)), 1e-9)
    tight = mask & (along > 0.5)  # an edge pixel belongs to the thing that covers most of it
    if np.count_nonzero(tight) < _SPECK:
        tight = mask
    y, x = ndimage.center_of_mass(tight)
    shape = name_shape(tight)
    return Part(tight, (float(x), float(y)), int(tight.sum()), name_color(color, COLORS), shape)


def signature(mask: np.ndarray) -> Float[np.ndarray, " bins"]:
    """Which share of each direction and distance from the centre a mask covers.

    Distances are in units of the square root of the area, so that size drops out.
    """
    y, x = ndimage.center_of_mass(mask)
    scale = np.sqrt(mask.sum())
    angle = 2 * np.pi * np.arange(_ANGLES) / _ANGLES
    radius = _REACH * (np.arange(_RADII) + 0.5) / _RADII * scale
    rows = y + radius[:, None] * np.sin(angle)
    cols = x + radius[:, None] * np.cos(angle)
    soft = ndimage.map_coordinates(mask.astype(np.float32), [rows, cols], order=1, cval=0.0)
    return soft.ravel()


@lru_cache(maxsize=1)
def _prototypes() -> Float[np.ndarray, "shapes examples bins"]:
    rng = np.random.default_rng(7)
    found = []
    for shape in SHAPES:
        cards = [
            draw_card(Scene("single", (Item(shape, "red", n),), background="white"), rng)
            for n in (1, 1, 2, 2, 3, 4)
        ]
        masks = []
        for card in cards:
            lab = to_lab(np.asarray(card))
            back, ink = to_lab(np.array(BACKGROUNDS["white"])), to_lab(np.array(COLORS["red"]))
            along = (lab - back) @ (ink - back) / ((ink - back) @ (ink - back))
            labels, _ = ndimage.label(along > 0.5)
            masks.append(labels == 1)
        found.append([signature(mask) for mask in masks])
    return np.array(found)


def name_shape(mask: np.ndarray) -> dict[str, float]:
    """How much each shape is meant by a mask; all small if none is."""
    difference = _prototypes() - signature(mask)
    distance = np.abs(difference).mean(axis=-1).min(axis=-1)
    weight = np.exp(-0.5 * (distance / _LIKENESS) ** 2)
    weight = weight / (weight.sum() + 0.02)
    return dict(zip(SHAPES, weight.tolist(), strict=True))
