"""Make the starter's prompt sets from the caption language, the same ones each time."""

from collections.abc import Callable
from typing import Final

import numpy as np

from recast_eval.scorers.world.grammar import write_caption
from recast_eval.scorers.world.scene import (
    BACKGROUNDS,
    COLORS,
    RELATIONS,
    SHAPES,
    Family,
    Item,
    Scene,
    Word,
)

Row = dict[str, str]
SEED: Final = 2026
_GENEVAL: Final[dict[Family, tuple[int, int, int]]] = {
    "single": (20, 6, 10),
    "colors": (100, 8, 16),
    "two": (100, 8, 16),
    "counting": (100, 8, 18),
    "position": (100, 10, 20),
    "attribute": (100, 8, 16),
}
_OCR: Final[dict[int, tuple[int, int, int]]] = {1: (14, 4, 8), 2: (180, 24, 48), 3: (150, 20, 40)}
_LETTERS: Final = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def _pick(rng: np.random.Generator, names: tuple[str, ...], count: int) -> list[str]:
    return [names[i] for i in rng.permutation(len(names))[:count]]


def _background(rng: np.random.Generator) -> str | None:
    return _pick(rng, tuple(BACKGROUNDS), 1)[0] if rng.random() < 0.75 else None


def _scene(family: Family, rng: np.random.Generator) -> Scene:
    one, other = _pick(rng, SHAPES, 2)
    tint, second = _pick(rng, tuple(COLORS), 2)
    back = _background(rng)
    if family == "single":
        return Scene(family, (Item(one),), background=back)
    if family == "colors":
        return Scene(family, (Item(one, tint),), background=back)
    if family == "two":
        return Scene(family, (Item(one), Item(other)), background=back)
    if family == "counting":
        color = tint if rng.random() < 0.5 else None
        return Scene(family, (Item(one, color, int(rng.integers(2, 5))),), background=back)
    if family == "attribute":
        return Scene(family, (Item(one, tint), Item(other, second)), background=back)
    named = rng.random() < 0.5
    items = (Item(one, tint if named else None), Item(other, second if named else None))
    relation = RELATIONS[int(rng.integers(len(RELATIONS)))]
    return Scene("position", items, relation=relation, background=back)


def _fresh(draw: Callable[[], Scene], taken: set[str], key: Callable[[Scene], str]) -> Scene:
    while True:
        scene = draw()
        name = key(scene)
        if name not in taken:
            taken.add(name)
            return scene


def _rows(set_name: str, split: str, scenes: list[Scene]) -> list[Row]:
    return [
        {"prompt_id": f"{set_name}-{split}-{i:04d}", "prompt": write_caption(s), "category": c}
        for i, (s, c) in enumerate((s, s.family) for s in scenes)
    ]


def make_geneval(seed: int = SEED) -> dict[str, list[Row]]:
    """Split name -> prompts of the GenEval families; no caption twice in all splits."""
    rng = np.random.default_rng(seed)
    taken: set[str] = set()
    scenes: dict[str, list[Scene]] = {"test": [], "validation": [], "train": []}
    for family, counts in _GENEVAL.items():
        for split, count in zip(("train", "validation", "test"), counts, strict=True):
            scenes[split] += [
                _fresh(lambda f=family: _scene(f, rng), taken, write_caption)  # type: ignore[misc]
                for _ in range(count)
            ]
    return {split: _rows("geneval", split, scenes[split]) for split in scenes}


def make_ocr(seed: int = SEED) -> dict[str, list[Row]]:
    """Split name -> prompts that ask for a word; no word twice in all splits."""
    rng = np.random.default_rng([seed, 1])
    taken: set[str] = set()

    def draw(length: int) -> Scene:
        text = "".join(_LETTERS[i] for i in rng.integers(len(_LETTERS), size=length))
        color = _pick(rng, tuple(COLORS), 1)[0] if rng.random() < 0.6 else None
        return Scene("ocr", word=Word(text, color), background=_background(rng))

    def text(scene: Scene) -> str:
        return scene.word.text if scene.word else ""

    scenes: dict[str, list[Scene]] = {"test": [], "validation": [], "train": []}
    for length, counts in _OCR.items():
        for split, count in zip(("train", "validation", "test"), counts, strict=True):
            scenes[split] += [
                _fresh(lambda n=length: draw(n), taken, text)  # type: ignore[misc]
                for _ in range(count)
            ]
    return {split: _rows("ocr", split, scenes[split]) for split in scenes}


def make_mixed(seed: int = SEED) -> dict[str, list[Row]]:
    """Split name -> shapes and words in equal parts: a sample of the two other sets."""
    both = make_geneval(seed), make_ocr(seed)
    mixed: dict[str, list[Row]] = {}
    for split, count in (("train", 160), ("validation", 24), ("test", 24)):
        mixed[split] = []
        for rows in (b[split] for b in both):
            mixed[split] += [rows[i * len(rows) // count] for i in range(count)]
    return mixed


STARTER_SETS: Final[dict[str, Callable[[], dict[str, list[Row]]]]] = {
    "starter-geneval": make_geneval,
    "starter-ocr": make_ocr,
    "starter-mixed": make_mixed,
}
