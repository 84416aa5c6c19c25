"""Held-out judge ``verifier``: yes or no questions about a card, answered with other eyes.

Where the reward measures CIELAB distances and polar profiles, this one cuts by Otsu's
threshold, names colours by hue, and lays shapes over templates; it asks in the way of
TIFA (Hu et al. 2023, arXiv 2303.11897). No code for seeing is shared with the reward.
"""

import colorsys
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from PIL import Image
from scipy import ndimage

from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import ScorerCard, ScorerSpec
from recast_eval.scorers.each import NOT_APPLICABLE, EachScorer
from recast_eval.scorers.world import SHAPES, Item, Scene, draw_card, parse_caption

CARD: Final = ScorerCard(
    name="verifier",
    version=1,
    family="otsu-template",
    what="the yes or no questions that the caption implies are answered with yes",
    unit="share of questions answered with yes",
    low=0.0,
    high=1.0,
    source="rule after TIFA, Hu et al. 2023 (arXiv 2303.11897)",
    licence="Apache-2.0",
    preprocessing="Otsu's threshold on RGB distance, hue names, 24x24 templates",
)
_SMALL: Final = 20  # pixels
_GRID: Final = 24
_FIT: Final = 0.72  # overlap with a template from which a shape is that shape
_HUES: Final = (
    (14, "red"),
    (42, "orange"),
    (72, "yellow"),
    (185, "green"),
    (255, "blue"),
    (325, "purple"),
    (361, "red"),
)


class _Blob(NamedTuple):
    shape: str
    color: str
    x: float
    y: float


class _View(NamedTuple):
    background: str
    blobs: list[_Blob]
    ink: float
    """Share of the card that is not background."""


def name_hue(rgb: np.ndarray) -> str:
    """Name one colour, 0-255, by hue, saturation and value."""
    hue, saturation, value = colorsys.rgb_to_hsv(*(float(c) / 255 for c in rgb))
    hue *= 360
    if value < 0.25:
        return "black"
    if saturation < 0.12:
        return "white" if value > 0.85 else "gray"
    if saturation < 0.45 and value > 0.75 and (hue > 310 or hue < 20):
        return "pink"
    if saturation < 0.3:
        return "unclear"
    return next(name for limit, name in _HUES if hue < limit)


def otsu(values: np.ndarray) -> float:
    """Threshold that parts a sample in two with the least variance within (Otsu 1979)."""
    counts, edges = np.histogram(values, bins=64)
    middle = (edges[:-1] + edges[1:]) / 2
    below = np.cumsum(counts)
    above = below[-1] - below
    total = np.cumsum(counts * middle)
    with np.errstate(divide="ignore", invalid="ignore"):
        between = below * above * (total / below - (total[-1] - total) / above) ** 2
    return float(edges[1 + int(np.nanargmax(between[:-1]))])


def _look(pixels: np.ndarray) -> _View:
    coarse = (pixels // 16).reshape(-1, 3).astype(np.int64) @ [256, 16, 1]
    common = np.bincount(coarse).argmax()  # the colour that covers most of the card
    ground = np.median(pixels.reshape(-1, 3)[coarse == common], axis=0)
    distance = np.linalg.norm(pixels - ground, axis=-1)
    mask = distance > max(otsu(distance), 40.0) if np.ptp(distance) > 0 else distance > 40.0
    labels, _ = ndimage.label(mask, np.ones((3, 3)))
    blobs = []
    for i, box in enumerate(ndimage.find_objects(labels), start=1):
        inside = labels[box] == i
        if inside.sum() >= _SMALL:
            core = ndimage.binary_erosion(inside)
            color = name_hue(np.median(pixels[box][core if core.any() else inside], axis=0))
            y, x = (ndimage.center_of_mass(inside)[k] + box[k].start for k in (0, 1))
            blobs.append(_Blob(name_template(inside), color, float(x), float(y)))
    return _View(name_hue(ground), blobs, float(mask.mean()))


def _grid(mask: np.ndarray) -> np.ndarray:
    """A mask's box stretched to a square, keeping its proportion of width to height apart."""
    image = Image.fromarray((mask * 255).astype(np.uint8)).resize(
        (_GRID, _GRID), Image.Resampling.BOX
    )
    return np.asarray(image, np.float64) / 255


@lru_cache(maxsize=1)
def _templates() -> dict[str, tuple[np.ndarray, float]]:
    rng = np.random.default_rng(31)
    found = {}
    for shape in SHAPES:
        grids, ratios = [], []
        for _ in range(8):
            scene = Scene("single", (Item(shape, "blue"),), background="white")
            card = np.asarray(draw_card(scene, rng), np.float64)
            mask = np.linalg.norm(card - 250, axis=-1) > 130
            box = ndimage.find_objects(mask.astype(np.int64))[0]
            grids.append(_grid(mask[box]))
            ratios.append(mask[box].shape[1] / mask[box].shape[0])
        found[shape] = (np.mean(grids, axis=0), float(np.median(ratios)))
    return found


def name_template(mask: np.ndarray) -> str:
    """The shape whose template overlaps a mask most; ``unclear`` if none does well."""
    grid, ratio = _grid(mask), mask.shape[1] / mask.shape[0]
    best, name = 0.0, "unclear"
    for shape, (template, proportion) in _templates().items():
        overlap = float(np.minimum(grid, template).sum() / np.maximum(grid, template).sum())
        fit = overlap * min(ratio / proportion, proportion / ratio) ** 0.5
        if fit > best:
            best, name = fit, shape
    return name if best >= _FIT else "unclear"


def _about_things(scene: Scene, view: _View) -> dict[str, bool]:
    asked: dict[str, bool] = {}
    chosen: list[_Blob | None] = []
    for item in scene.items:
        fitting = [b for b in view.blobs if b.shape == item.shape]
        asked[f"is there a {item.shape}?"] = bool(fitting)
        if item.color:
            colored = [b for b in fitting if b.color == item.color]
            asked[f"is a {item.shape} {item.color}?"] = len(colored) >= item.count
            fitting = colored or fitting
        if item.count > 1:
            asked[f"are there {item.count} of {item.shape}?"] = len(fitting) == item.count
        chosen.append(fitting[0] if fitting else None)
    total = sum(i.count for i in scene.items)
    asked[f"are there {total} things in all?"] = len(view.blobs) == total
    if scene.relation:
        first, second = chosen
        asked[f"is the first {scene.relation} the second?"] = bool(
            first and second and _stands(first, second, scene.relation)
        )
    return asked


def _stands(first: _Blob, second: _Blob, relation: str) -> bool:
    dx, dy = second.x - first.x, second.y - first.y
    if relation in ("left of", "right of"):
        return abs(dx) > abs(dy) and (dx > 0) == (relation == "left of")
    return abs(dy) > abs(dx) and (dy > 0) == (relation == "above")


def _about_word(scene: Scene, view: _View) -> dict[str, bool]:
    letters = len(scene.word.text) if scene.word else 1
    colors = {b.color for b in view.blobs}
    row = [b.y for b in view.blobs]
    asked = {
        "is something written?": bool(view.blobs) and view.ink < 0.5,
        "is it of one colour?": len(colors) == 1 and not colors & {"unclear"},
        "is it in one line?": bool(row) and max(row) - min(row) < 10,
        f"are there {letters} letters or touching ones?": 0 < len(view.blobs) <= letters,
    }
    if scene.word and scene.word.color:
        asked[f"is it {scene.word.color}?"] = colors == {scene.word.color}
    return asked


def _score(pixels: np.ndarray, prompt: str) -> Scored | Failed:
    scene = parse_caption(prompt)
    if scene is None:
        return Failed(reason=NOT_APPLICABLE, detail="the prompt is no caption of the card language")
    if pixels.shape[:2] != (64, 64):
        pixels = np.asarray(Image.fromarray(pixels).resize((64, 64), Image.Resampling.BOX))
    view = _look(pixels)
    asked = _about_word(scene, view) if scene.word else _about_things(scene, view)
    if scene.background:
        # Of an empty card nothing is asked twice: its colour counts beside something on it.
        seen = view.background == scene.background and bool(view.blobs)
        asked[f"is the card {scene.background}?"] = seen
    return Scored(value=sum(asked.values()) / len(asked), detail={"answers": asked})


def _build(*, device: str = "cpu", weights: str | None = None) -> EachScorer:
    del device, weights  # a rule runs where its arrays are
    return EachScorer(CARD, _score)


SPEC: Final = ScorerSpec(CARD, _build)
