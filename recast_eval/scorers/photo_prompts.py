"""Prompt sets for photo models, made here: GenEval's families over COCO's classes, and signs.

The forms are GenEval's (Ghosh et al. 2023, arXiv:2310.11513); neither its list nor Flow-GRPO's is
copied, so that a policy trained on these can still be tested on the published ones.
"""

from collections.abc import Callable
from itertools import product
from typing import Final

import numpy as np

from recast_eval.scorers.geneval_prompts import COLORS, NUMBERS, RELATIONS

Row = dict[str, str]
SEED: Final = 2026
THINGS: Final = (
    "apple", "backpack", "banana", "bear", "bed", "bench", "bicycle", "bird", "boat", "book",
    "bottle", "bowl", "broccoli", "bus", "cake", "car", "carrot", "cat", "chair", "clock",
    "couch", "cow", "cup", "dog", "donut", "elephant", "fork", "frisbee", "giraffe", "handbag",
    "horse", "keyboard", "kite", "knife", "laptop", "microwave", "motorcycle", "orange", "oven",
    "pizza", "refrigerator", "sandwich", "sheep", "sink", "skateboard", "spoon", "stop sign",
    "suitcase", "surfboard", "teddy bear", "tie", "toaster", "toilet", "toothbrush", "train",
    "truck", "umbrella", "vase", "zebra",
)  # fmt: skip
_WORDS: Final = (
    "OPEN", "CLOSED", "SALE", "COFFEE", "BAKERY", "MARKET", "LIBRARY", "EXIT", "WELCOME", "HARBOUR",
    "GARDEN", "MUSEUM", "STATION", "CINEMA", "BRIDGE", "RIVER", "SUMMER", "WINTER", "FRESH BREAD",
    "NO ENTRY", "TICKETS", "LEMONADE", "BICYCLES", "HOTEL", "PIANO", "ORCHARD", "LIGHTHOUSE",
    "CHESS CLUB", "NIGHT BUS", "SLOW DOWN", "GOOD LUCK", "HELLO", "THANK YOU", "KEEP LEFT",
    "ROOM 42", "PLATFORM 9", "SINCE 1987", "OPEN 24 HOURS", "WET PAINT", "LOST CAT",
)  # fmt: skip
_PLACES: Final = (
    'a wooden sign that says "{}" above a shop door',
    'a chalkboard in a cafe with the text "{}"',
    'a neon sign reading "{}" on a brick wall at night',
    'a paper poster on a lamp post that reads "{}"',
    'a white mug with the word "{}" printed on it',
    'a city bus whose display shows "{}"',
    'a birthday cake with "{}" written in icing',
    'a road sign by a field that says "{}"',
    'the cover of a book titled "{}"',
    'a shop window with "{}" painted on the glass',
    'a hand-painted banner between two trees that reads "{}"',
    'a T-shirt on a washing line with "{}" on its front',
)
_SPLITS: Final = ("test", "validation", "train")


def _noun(thing: str, color: str | None = None) -> str:
    words = f"{color} {thing}" if color else thing
    return ("an " if words[0] in "aeiou" else "a ") + words


def _plural(thing: str) -> str:
    if thing.endswith(("s", "ch", "sh", "x")):
        return thing + "es"
    return thing.removesuffix("fe") + "ves" if thing.endswith("fe") else thing + "s"


def _object_families(rng: np.random.Generator) -> dict[str, Callable[[], str]]:
    def pick(names: tuple[str, ...]) -> str:
        return names[int(rng.integers(len(names)))]

    def two(names: tuple[str, ...]) -> list[str]:
        return [names[i] for i in rng.permutation(len(names))[:2]]

    def pair(join: str, colors: list[str | None]) -> str:
        one, other = two(THINGS)
        return f"{_noun(one, colors[0])} {join} {_noun(other, colors[1])}"

    return {
        "single_object": lambda: _noun(pick(THINGS)),
        "two_object": lambda: pair("and", [None, None]),
        "counting": lambda: f"{pick(tuple(NUMBERS))} {_plural(pick(THINGS))}",
        "colors": lambda: _noun(pick(THINGS), pick(COLORS)),
        "position": lambda: pair(pick(RELATIONS), [None, None]),
        "color_attr": lambda: pair("and", [*two(COLORS)]),
    }


def make_objects(seed: int = SEED) -> dict[str, list[Row]]:
    """Split name -> prompts of GenEval's six families; no prompt twice in all splits."""
    rng = np.random.default_rng([seed, 2])
    families = _object_families(rng)
    sizes = {"test": 40, "validation": 10, "train": 200}
    few = {"single_object": 5, "counting": 2}  # of these there are not enough: divide by
    taken: set[str] = set()
    made: dict[str, list[Row]] = {}
    for split in _SPLITS:
        made[split] = []
        for family, draw in families.items():
            for _ in range(sizes[split] // few.get(family, 1)):
                while (text := draw()) in taken:
                    pass
                taken.add(text)
                number = len(made[split])
                made[split].append(
                    {
                        "prompt_id": f"objects-{split}-{number:04d}",
                        "prompt": f"a photo of {text}",
                        "category": family,
                    }
                )
    return made


def make_signs(seed: int = SEED) -> dict[str, list[Row]]:
    """Split name -> prompts that ask for written text; no text in two splits."""
    rng = np.random.default_rng([seed, 3])
    order = rng.permutation(len(_WORDS))
    shares = {"test": order[:10], "validation": order[10:14], "train": order[14:]}
    made: dict[str, list[Row]] = {}
    for split in _SPLITS:
        texts = [_WORDS[i] for i in shares[split]]
        prompts = [place.format(text) for text, place in product(texts, _PLACES)]
        made[split] = [
            {"prompt_id": f"signs-{split}-{n:04d}", "prompt": prompts[i], "category": "ocr"}
            for n, i in enumerate(rng.permutation(len(prompts)))
        ]
    return made


PHOTO_SETS: Final[dict[str, Callable[[], dict[str, list[Row]]]]] = {
    "objects": make_objects,
    "signs": make_signs,
}
