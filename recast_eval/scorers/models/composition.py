"""Reward ``composition``: does the card show what its caption asks for? A rule, no weights.

The card is segmented and read back; objects, colours, count, relation and background get
partial credit, as in GenEval (Ghosh et al. 2023, arXiv 2310.11513), whose all-or-nothing
verdict is kept in ``detail["correct"]``.
"""

from typing import Final

import numpy as np
from scipy.optimize import linear_sum_assignment

from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import ScorerCard, ScorerSpec
from recast_eval.scorers.each import NOT_APPLICABLE, EachScorer
from recast_eval.scorers.world import Item, Scene, parse_caption
from recast_eval.scorers.world.parts import Part, Parts, take_apart

CARD: Final = ScorerCard(
    name="composition",
    version=1,
    family="card-segmentation",
    what="the objects, colours, count, relation and background of the caption are on the card",
    unit="share of the caption's demands met",
    low=0.0,
    high=1.0,
    source="rule after GenEval, Ghosh et al. 2023 (arXiv 2310.11513)",
    licence="Apache-2.0",
    preprocessing="CIELAB distance from the border's colour, connected parts of 14 pixels and more",
)
_WEIGHTS: Final = {"objects": 0.4, "colors": 0.2, "relation": 0.2, "background": 0.2}
_CLEAR: Final = 0.5  # credit from which a demand counts as met in "correct"
_INK: Final = (0.03, 0.45)  # share of a card that the ink of a word covers


def _order(first: Part, second: Part, relation: str) -> float:
    """How clearly two things stand as asked: 1 from 8 pixels apart, 0 if the other way round."""
    axis = 1 if relation in ("above", "below") else 0
    gap = second.at[axis] - first.at[axis]
    across = abs(second.at[1 - axis] - first.at[1 - axis])
    signed = gap if relation in ("above", "left of") else -gap
    return float(np.clip((signed - max(0.0, across - abs(gap))) / 8, 0, 1))


def _things(scene: Scene, parts: Parts) -> dict[str, float]:
    wanted: list[Item] = [i for i in scene.items for _ in range(i.count)]
    found = parts.things
    shape = np.array([[p.shape[w.shape] for p in found] for w in wanted])
    tint = np.array([[p.color[w.color] if w.color else 1.0 for p in found] for w in wanted])
    if not found:
        shape = tint = np.zeros((len(wanted), 0))
    rows, cols = linear_sum_assignment(shape * (0.5 + 0.5 * tint) + 0.1 * tint, maximize=True)
    credit = {"objects": float(shape[rows, cols].sum()) / len(wanted)}
    if any(w.color for w in wanted):
        colored = [(r, c) for r, c in zip(rows, cols, strict=True) if wanted[r].color]
        asked = sum(1 for w in wanted if w.color)
        credit["colors"] = sum(float(tint[r, c]) for r, c in colored) / asked
    if scene.relation:
        pair = dict(zip(rows.tolist(), cols.tolist(), strict=True))
        credit["relation"] = 0.0
        if len(pair) == 2:
            both = float(min(shape[0, pair[0]], shape[1, pair[1]]))
            credit["relation"] = both * _order(found[pair[0]], found[pair[1]], scene.relation)
    credit["count"] = max(0.0, 1 - abs(len(found) - len(wanted)) / len(wanted))
    return credit


def _word(scene: Scene, parts: Parts) -> dict[str, float]:
    """Colour of the ink and background alone: which letters it forms is for OCR to say."""
    share = float(parts.ink.mean())
    low, high = _INK
    present = float(np.clip(share / low, 0, 1) * np.clip((0.7 - share) / (0.7 - high), 0, 1))
    area = sum(p.area for p in parts.things)
    colors: dict[str, float] = {}
    for part in parts.things:
        for name, weight in part.color.items():
            colors[name] = colors.get(name, 0.0) + weight * part.area / area
    asked = scene.word.color if scene.word else None
    one = colors.get(asked, 0.0) if asked else max(colors.values(), default=0.0)
    letters = len(scene.word.text) if scene.word else 1
    # Letters may touch, so that fewer parts are no fault; more parts are.
    count = max(0.0, 1 - max(0, len(parts.things) - letters) / letters) if area else 0.0
    return {"objects": present if area else 0.0, "colors": one, "count": count}


def _score(pixels: np.ndarray, prompt: str) -> Scored | Failed:
    scene = parse_caption(prompt)
    if scene is None:
        return Failed(reason=NOT_APPLICABLE, detail="the prompt is no caption of the card language")
    parts = take_apart(pixels)
    credit = _word(scene, parts) if scene.word else _things(scene, parts)
    if scene.background:
        credit["background"] = parts.background[scene.background]
    total = sum(_WEIGHTS[k] for k in credit if k != "count")
    mean = sum(_WEIGHTS[k] * v for k, v in credit.items() if k != "count") / total
    # What is missing or too much spoils the rest: an empty or a tiled card earns little.
    value = mean * (0.3 + 0.7 * credit["count"]) * min(1.0, 2 * credit["objects"])
    correct = credit["count"] == 1 and all(v >= _CLEAR for v in credit.values())
    detail = {"correct": correct} | {k: round(v, 4) for k, v in credit.items()}
    return Scored(value=float(np.clip(value, 0, 1)), detail=detail)


def _build(*, device: str = "cpu", weights: str | None = None) -> EachScorer:
    del device, weights  # a rule runs where its arrays are
    return EachScorer(CARD, _score)


SPEC: Final = ScorerSpec(CARD, _build)
