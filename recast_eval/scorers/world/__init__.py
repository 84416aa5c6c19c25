"""The starter's world: captioned cards, made in code, read back from their captions."""

from recast_eval.scorers.world.draw import draw_card
from recast_eval.scorers.world.grammar import parse_caption, write_caption
from recast_eval.scorers.world.scene import (
    BACKGROUNDS,
    COLORS,
    RELATIONS,
    SHAPES,
    SIZE,
    Item,
    Scene,
    Word,
)

__all__ = [
    "BACKGROUNDS",
    "COLORS",
    "RELATIONS",
    "SHAPES",
    "SIZE",
    "Item",
    "Scene",
    "Word",
    "draw_card",
    "parse_caption",
    "write_caption",
]
