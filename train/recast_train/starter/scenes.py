"""The distribution of scenes that the starter is pre-trained on."""

from typing import Final

import numpy as np

from recast_eval.scorers.world import BACKGROUNDS, COLORS, RELATIONS, SHAPES, Item, Scene, Word
from recast_eval.scorers.world.scene import Family

FAMILIES: Final[dict[Family, float]] = {
    "single": 0.06,
    "colors": 0.12,
    "two": 0.08,
    "counting": 0.14,
    "position": 0.14,
    "attribute": 0.11,
    "ocr": 0.35,
}
"""Share of each caption family in the pre-training data."""


def sample_scene(rng: np.random.Generator, family: Family | None = None) -> Scene:
    """Draw one scene; spelled strings are random letters, so that any short word can be asked."""
    family = family or rng.choice(list(FAMILIES), p=list(FAMILIES.values()))
    background = str(rng.choice(list(BACKGROUNDS))) if rng.random() < 0.75 else None
    shapes = [str(s) for s in rng.choice(SHAPES, 2, replace=False)]
    colors = [str(c) for c in rng.choice(list(COLORS), 2, replace=False)]
    if family == "ocr":
        length = int(rng.choice([1, 2, 3], p=[0.2, 0.45, 0.35]))
        text = "".join(rng.choice(list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), length))
        color = colors[0] if rng.random() < 0.6 else None
        return Scene("ocr", word=Word(text, color), background=background)
    if family == "single":
        return Scene(family, (Item(shapes[0]),), background=background)
    if family == "colors":
        return Scene(family, (Item(shapes[0], colors[0]),), background=background)
    if family == "counting":
        color = colors[0] if rng.random() < 0.5 else None
        item = Item(shapes[0], color, int(rng.integers(2, 5)))
        return Scene(family, (item,), background=background)
    if family == "two":
        return Scene(family, (Item(shapes[0]), Item(shapes[1])), background=background)
    if family == "attribute":
        items = (Item(shapes[0], colors[0]), Item(shapes[1], colors[1]))
        return Scene(family, items, background=background)
    relation = str(rng.choice(RELATIONS))
    named = rng.random() < 0.5
    items = (
        Item(shapes[0], colors[0] if named else None),
        Item(shapes[1], colors[1] if named else None),
    )
    return Scene("position", items, relation=relation, background=background)
