"""Captions and back. A caption that is not in this small language has no scene."""

import re
from typing import Final

from recast_eval.scorers.world.scene import (
    BACKGROUNDS,
    COLORS,
    NUMBERS,
    RELATIONS,
    SHAPES,
    Family,
    Item,
    Scene,
    Word,
)


def _plural(shape: str) -> str:
    return shape + ("es" if shape.endswith("s") else "s")


_SINGULAR: Final = {_plural(s): s for s in SHAPES}
_C = "(?:(" + "|".join(COLORS) + ") )?"
_S = "(" + "|".join(SHAPES) + ")"
_BACK = re.compile(r"^(.*?)(?: on a (" + "|".join(BACKGROUNDS) + r") card)?$")
_WORD = re.compile(r'^the word "([A-Z]{1,4})"(?: in (' + "|".join(COLORS) + r"))?$")
_ONE = re.compile(rf"^an? {_C}{_S}$")
_TWO = re.compile(rf"^an? {_C}{_S} and an? {_C}{_S}$")
_REL = re.compile(rf"^an? {_C}{_S} ({'|'.join(RELATIONS)}) an? {_C}{_S}$")
_MANY = re.compile(rf"^({'|'.join(NUMBERS)}) {_C}({'|'.join(_SINGULAR)})$")


def _noun(item: Item) -> str:
    words = f"{item.color} {item.shape}" if item.color else item.shape
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"


def write_caption(scene: Scene) -> str:
    """Say a scene in words; ``parse_caption`` turns it back into an equal scene."""
    if scene.word:
        text = f'the word "{scene.word.text}"'
        text += f" in {scene.word.color}" if scene.word.color else ""
    elif len(scene.items) == 2:
        first, second = map(_noun, scene.items)
        text = f"{first} {scene.relation or 'and'} {second}"
    elif scene.items[0].count > 1:
        item = scene.items[0]
        number = next(w for w, n in NUMBERS.items() if n == item.count)
        text = " ".join(filter(None, (number, item.color, _plural(item.shape))))
    else:
        text = _noun(scene.items[0])
    return text + (f" on a {scene.background} card" if scene.background else "")


def parse_caption(caption: str) -> Scene | None:
    """Read a caption back; None if it is not one of ours (no guess is made)."""
    head = _BACK.match(caption)
    if head is None:
        return None
    text, background = head.groups()
    if m := _WORD.match(text):
        return Scene("ocr", word=Word(m[1], m[2]), background=background)
    if m := _REL.match(text):
        items = (Item(m[2], m[1]), Item(m[5], m[4]))
        return Scene("position", items, relation=m[3], background=background)
    if m := _TWO.match(text):
        items = (Item(m[2], m[1]), Item(m[4], m[3]))
        family: Family = "attribute" if m[1] and m[3] else "two"
        return Scene(family, items, background=background)
    if m := _MANY.match(text):
        many = Item(_SINGULAR[m[3]], m[2], NUMBERS[m[1]])
        return Scene("counting", (many,), background=background)
    if m := _ONE.match(text):
        family = "colors" if m[1] else "single"
        return Scene(family, (Item(m[2], m[1]),), background=background)
    return None
