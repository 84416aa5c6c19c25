"""The starter's held-out judges: they see the same, with other eyes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recast_eval.errors import DataError, MissingError
from recast_eval.records import Failed, Scored
from recast_eval.scorers import SCORERS, Scorer
from recast_eval.scorers.each import NOT_APPLICABLE
from recast_eval.scorers.models.ocr_tesseract import find_tessdata
from recast_eval.scorers.models.verifier import name_hue, otsu
from recast_eval.scorers.towers import load_tower
from recast_eval.scorers.world import BACKGROUNDS, COLORS, SHAPES, draw_card, parse_caption
from recast_eval.scorers.world.prompt_sets import make_geneval, make_ocr

GENEVAL = [r["prompt"] for r in make_geneval()["test"]][::4]
OCR = [r["prompt"] for r in make_ocr()["test"]][::4]
JUDGES = ["alignment-heldout", "card-distance", "ocr-tesseract", "verifier"]


def build(name: str) -> Scorer:
    """A judge; skipped where an engine is not installed, as a user's machine may lack it."""
    try:
        return SCORERS.load(name).build()
    except MissingError as error:
        if name != "ocr-tesseract":
            raise
        pytest.skip(str(error))


def captions_for(name: str) -> list[str]:
    return OCR if name == "ocr-tesseract" else GENEVAL + OCR


def right(captions: list[str], seed: int = 5) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    scenes = [parse_caption(c) for c in captions]
    return [np.asarray(draw_card(s, rng)) for s in scenes if s]


def values(scorer: Scorer, images: list[np.ndarray], captions: list[str]) -> np.ndarray:
    outcomes = scorer(images, captions)
    assert all(isinstance(o, Scored) for o in outcomes)
    return np.array([o.value for o in outcomes if isinstance(o, Scored)])


def blank(cards: list[np.ndarray]) -> list[np.ndarray]:
    return [np.broadcast_to(c[0, 0], c.shape).copy() for c in cards]


def noise(cards: list[np.ndarray]) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.integers(0, 256, c.shape, dtype=np.uint8) for c in cards]


def tiled(cards: list[np.ndarray]) -> list[np.ndarray]:
    small = [np.asarray(Image.fromarray(c).resize((16, 16))) for c in cards]
    return [np.tile(s, (4, 4, 1)) for s in small]


def exchanged(cards: list[np.ndarray]) -> list[np.ndarray]:
    return cards[1:] + cards[:1]


@pytest.mark.parametrize("trick", [blank, noise, tiled, exchanged])
@pytest.mark.parametrize("name", JUDGES)
def test_a_right_picture_beats_tricks_and_other_pictures(
    name: str, trick: Callable[[list[np.ndarray]], list[np.ndarray]]
) -> None:
    scorer, captions = build(name), captions_for(name)
    cards = right(captions)
    good, bad = values(scorer, cards, captions), values(scorer, trick(cards), captions)
    assert good.mean() > bad.mean() + 0.15
    assert (good > bad).mean() >= 0.75


@pytest.mark.parametrize("name", JUDGES)
def test_a_batch_is_single_calls_and_repeats_itself(name: str) -> None:
    scorer, captions = build(name), OCR[:6]
    cards = right(captions)[:4] + noise(right(captions)[:2])
    batch = scorer(cards, captions)
    assert batch == [scorer([i], [p])[0] for i, p in zip(cards, captions, strict=True)]
    assert batch[::-1] == scorer(cards[::-1], captions[::-1])
    card = scorer.card
    for value in values(scorer, cards, captions):
        assert card.low is None or value >= card.low
        assert card.high is None or value <= card.high


@pytest.mark.parametrize("name", JUDGES)
def test_other_prompts_are_not_applicable(name: str) -> None:
    (outcome,) = build(name)(right(["a red circle"]), ["a photo of a cat"])
    assert isinstance(outcome, Failed)
    assert outcome.reason == NOT_APPLICABLE


def test_the_verifier_says_yes_to_every_question_about_a_right_card() -> None:
    assert values(build("verifier"), right(GENEVAL + OCR), GENEVAL + OCR).mean() > 0.99


def test_the_verifier_hears_which_question_fails() -> None:
    scorer = build("verifier")
    (outcome,) = scorer(
        right(["a red circle below a blue star on a white card"]),
        ["a red circle above a blue star on a white card"],
    )
    assert isinstance(outcome, Scored)
    no = [q for q, yes in outcome.detail["answers"].items() if not yes]
    assert no == ["is the first above the second?"]


@pytest.mark.parametrize("name", [*COLORS, *BACKGROUNDS])
def test_palette_colours_have_their_names(name: str) -> None:
    rgb = np.array((COLORS | BACKGROUNDS)[name], float)
    assert name_hue(rgb) == name


def test_otsu_parts_two_heaps_between_them() -> None:
    rng = np.random.default_rng(0)
    heaps = np.concatenate([rng.normal(10, 1, 500), rng.normal(90, 1, 100)])
    assert 13 < otsu(heaps) < 87


def test_every_shape_has_its_template() -> None:
    scorer = build("verifier")
    captions = [f"a blue {shape} on a white card" for shape in SHAPES for _ in range(4)]
    assert values(scorer, right(captions), captions).min() == 1


def test_missing_tessdata_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "eng.traineddata").write_bytes(b"x")
    assert find_tessdata(str(tmp_path)) == tmp_path


def test_missing_or_wrong_weights_are_said(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="recast-train starter towers"):
        load_tower(tmp_path / "gone.safetensors", "conv")
    (tmp_path / "x.safetensors").write_bytes(b"no tensors")
    with pytest.raises(DataError, match="not weights of a conv tower"):
        load_tower(tmp_path / "x.safetensors", "conv")


def test_other_weights_are_another_scorer(tmp_path: Path) -> None:
    spec = SCORERS.load("alignment")
    assert spec.build().card.digest() != spec.card.digest()
    assert len(spec.build().card.revision) == 16
