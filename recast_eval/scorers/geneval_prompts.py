"""What a GenEval prompt asks for (Ghosh et al. 2023, arXiv:2310.11513): six families, read back.

a photo of a dog | two dogs | a red dog | a dog and a cat | a red dog and a blue cat
a photo of a dog left of a cat        (the first is where the relation says)
"""

import re
from dataclasses import dataclass
from typing import Final

COLORS: Final = (
    "red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white",
)  # fmt: skip
NUMBERS: Final = {"two": 2, "three": 3, "four": 4}
RELATIONS: Final = ("left of", "right of", "above", "below")
_NOUN: Final = rf"(?:an? )?(?:({'|'.join(COLORS)}) )?([a-z][a-z ]*?)"
_PROMPT: Final = re.compile(r"^(?:a photo of )(.+?)\.?$")
_PAIR: Final = re.compile(rf"^{_NOUN} (and|{'|'.join(RELATIONS)}) {_NOUN}$")
_MANY: Final = re.compile(rf"^({'|'.join(NUMBERS)}) (?:({'|'.join(COLORS)}) )?([a-z][a-z ]*)$")
_ONE: Final = re.compile(rf"^{_NOUN}$")


@dataclass(frozen=True, slots=True)
class Wanted:
    """``count`` instances of a COCO class, all in ``color`` if one is named."""

    name: str
    count: int = 1
    color: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """Classes wanted, and how the first stands to the second."""

    objects: tuple[Wanted, ...]
    relation: str | None = None


def _singular(noun: str, classes: frozenset[str]) -> str | None:
    for ending, instead in (("", ""), ("s", ""), ("es", ""), ("ves", "fe"), ("ies", "y")):
        stem = noun.removesuffix(ending) + instead if noun.endswith(ending) else ""
        if stem in classes:
            return stem
    return None


def parse_geneval(prompt: str, classes: frozenset[str]) -> Request | None:
    """Read a prompt of GenEval's form; None if it is not one, or names an unknown class.

    Args:
        prompt: As in GenEval's list: lower case, ``a photo of ...``.
        classes: The detector's class names.
    """
    head = _PROMPT.match(prompt.strip())
    if head is None:
        return None
    text = head[1]
    if m := _PAIR.match(text):
        names = [_singular(n, classes) for n in (m[2], m[5])]
        if names[0] and names[1]:
            objects = (Wanted(names[0], color=m[1]), Wanted(names[1], color=m[4]))
            return Request(objects, None if m[3] == "and" else m[3])
    if m := _MANY.match(text):
        name = _singular(m[3], classes)
        return Request((Wanted(name, NUMBERS[m[1]], m[2]),)) if name else None
    if m := _ONE.match(text):
        name = _singular(m[2], classes)
        return Request((Wanted(name, color=m[1]),)) if name else None
    return None
