"""What a card can show: a palette, shapes, relations, words. No pixels here."""

from dataclasses import dataclass
from typing import Final, Literal

SIZE: Final = 64
"""Side of a card in pixels."""

COLORS: Final[dict[str, tuple[int, int, int]]] = {
    "red": (220, 38, 38),
    "orange": (245, 140, 20),
    "yellow": (250, 215, 40),
    "green": (30, 150, 60),
    "blue": (35, 90, 215),
    "purple": (140, 50, 170),
}
"""Colours of shapes and words, sRGB 0-255."""

BACKGROUNDS: Final[dict[str, tuple[int, int, int]]] = {
    "white": (250, 250, 250),
    "black": (18, 18, 18),
    "gray": (150, 150, 150),
    "pink": (250, 190, 205),
}
"""Colours of the card itself, sRGB 0-255."""

SHAPES: Final = ("circle", "square", "triangle", "star", "cross", "ring", "heart", "diamond")
RELATIONS: Final = ("above", "below", "left of", "right of")
NUMBERS: Final = {"two": 2, "three": 3, "four": 4}

Family = Literal["single", "colors", "two", "counting", "position", "attribute", "ocr"]


@dataclass(frozen=True, slots=True)
class Item:
    """One kind of thing on a card: ``count`` times ``shape`` in ``color`` (any, if None)."""

    shape: str
    color: str | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class Word:
    """A word written across the card, in capitals; any colour, if None."""

    text: str
    color: str | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """What a caption asks for. What is ``None`` is left to the painter.

    ``relation`` holds between ``items[0]`` and ``items[1]``: the first is *above*,
    *below*, *left of* or *right of* the second.
    """

    family: Family
    items: tuple[Item, ...] = ()
    relation: str | None = None
    word: Word | None = None
    background: str | None = None
