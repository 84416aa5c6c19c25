"""The starter's rewards: a right picture earns more than any trick."""

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

from recast_eval.records import Failed, Scored
from recast_eval.scorers import SCORERS, Scorer
from recast_eval.scorers.each import NOT_APPLICABLE
from recast_eval.scorers.world import BACKGROUNDS, draw_card, parse_caption
from recast_eval.scorers.world.prompt_sets import make_geneval, make_ocr

GENEVAL = [r["prompt"] for r in make_geneval()["test"]]
OCR = [r["prompt"] for r in make_ocr()["test"]]
ALL = GENEVAL[::4] + OCR[::4]
REWARDS = [("alignment", ALL)]
REWARDS += [("composition", GENEVAL), ("composition", OCR), ("finish", GENEVAL), ("finish", OCR)]
REWARDS += [("ocr", OCR)]


def right(captions: list[str], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    scenes = [parse_caption(c) for c in captions]
    return [np.asarray(draw_card(s, rng)) for s in scenes if s]


def blank(captions: list[str]) -> list[np.ndarray]:
    names = [(s.background if (s := parse_caption(c)) else None) or "white" for c in captions]
    return [np.full((64, 64, 3), BACKGROUNDS[n], np.uint8) for n in names]


def noise(captions: list[str]) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.integers(0, 256, (64, 64, 3), dtype=np.uint8) for _ in captions]


def tiled(captions: list[str]) -> list[np.ndarray]:
    small = [Image.fromarray(a).resize((16, 16)) for a in right(captions)]
    return [np.tile(np.asarray(s), (4, 4, 1)) for s in small]


def caption_written(captions: list[str]) -> list[np.ndarray]:
    found = []
    for caption, card in zip(captions, blank(captions), strict=True):
        image = Image.fromarray(card)
        ImageDraw.Draw(image).multiline_text((2, 2), caption.replace(" ", "\n"), fill=(120, 20, 20))
        found.append(np.asarray(image))
    return found


def values(scorer: Scorer, images: list[np.ndarray], captions: list[str]) -> np.ndarray:
    outcomes = scorer(images, captions)
    assert all(isinstance(o, Scored) for o in outcomes)
    return np.array([o.value for o in outcomes if isinstance(o, Scored)])


@pytest.mark.parametrize("trick", [blank, noise, tiled, caption_written])
@pytest.mark.parametrize(("name", "captions"), REWARDS)
def test_no_trick_beats_a_right_picture(
    name: str, captions: list[str], trick: Callable[[list[str]], list[np.ndarray]]
) -> None:
    if name == "ocr":
        pytest.importorskip("rapidocr_onnxruntime")
    scorer = SCORERS.load(name).build()
    good, bad = values(scorer, right(captions), captions), values(scorer, trick(captions), captions)
    assert good.mean() > bad.mean() + 0.04
    # tiny clean tiles are finished too: a tie within the width of an edge is no win
    assert (bad > good + 0.02).mean() <= 0.05


@pytest.mark.parametrize("captions", [GENEVAL, OCR])
def test_composition_calls_drawn_cards_correct(captions: list[str]) -> None:
    outcomes = SCORERS.load("composition").build()(right(captions), captions)
    correct = [isinstance(o, Scored) and o.detail["correct"] for o in outcomes]
    assert np.mean(correct) >= 0.98


def test_composition_notices_each_wrong_demand() -> None:
    scorer = SCORERS.load("composition").build()
    asked = "a red circle above a blue star on a white card"
    order = [
        asked,
        "a green circle above a blue star on a white card",
        "a red square above a blue star on a white card",
        "a red circle below a blue star on a white card",
        "a red circle above a blue star on a black card",
        "a red circle on a white card",
    ]
    got = [values(scorer, right([c] * 8), [asked] * 8).mean() for c in order]
    assert got[0] > 0.85
    assert max(got[1:]) < got[0] - 0.08
    assert got[5] < 0.5


def test_counts_are_counted() -> None:
    scorer = SCORERS.load("composition").build()
    made = ["a star", "two stars", "three stars", "four stars"]
    for asked in made[1:]:
        got = [values(scorer, right([c] * 4), [asked] * 4).mean() for c in made]
        assert int(np.argmax(got)) == made.index(asked)


def test_finish_falls_with_blur_and_grain() -> None:
    scorer = SCORERS.load("finish").build()
    cards, rng = right(GENEVAL), np.random.default_rng(0)
    clean = values(scorer, cards, GENEVAL).mean()
    soft = [np.asarray(Image.fromarray(a).filter(ImageFilter.GaussianBlur(1.5))) for a in cards]
    grain = [np.clip(a + rng.normal(0, 8, a.shape), 0, 255).astype(np.uint8) for a in cards]
    assert clean > 0.93
    assert values(scorer, soft, GENEVAL).mean() < clean - 0.2
    assert values(scorer, grain, GENEVAL).mean() < clean - 0.1


def test_ocr_reads_drawn_words() -> None:
    pytest.importorskip("rapidocr_onnxruntime")
    scorer = SCORERS.load("ocr").build()
    assert values(scorer, right(OCR), OCR).mean() > 0.93
    shifted = OCR[1:] + OCR[:1]
    assert values(scorer, right(OCR), shifted).mean() < 0.2


@pytest.mark.parametrize(
    ("name", "prompt"), [("composition", "a photo of a cat"), ("ocr", "a red circle")]
)
def test_a_prompt_that_asks_for_nothing_readable_is_not_applicable(name: str, prompt: str) -> None:
    if name == "ocr":
        pytest.importorskip("rapidocr_onnxruntime")
    (outcome,) = SCORERS.load(name).build()(blank(["a circle"]), [prompt])
    assert isinstance(outcome, Failed)
    assert outcome.reason == NOT_APPLICABLE


@pytest.mark.parametrize("name", ["composition", "finish", "ocr"])
def test_a_batch_is_single_calls_and_repeats_itself(name: str) -> None:
    if name == "ocr":
        pytest.importorskip("rapidocr_onnxruntime")
    scorer, captions = SCORERS.load(name).build(), OCR[:12]
    cards = right(captions)[:6] + noise(captions[6:])
    batch = scorer(cards, captions)
    assert batch == [scorer([i], [p])[0] for i, p in zip(cards, captions, strict=True)]
    assert batch == SCORERS.load(name).build()(cards, captions)
    for outcome in batch:
        assert isinstance(outcome, Scored)
        assert 0 <= outcome.value <= 1


@pytest.mark.parametrize("name", ["composition", "finish"])
@pytest.mark.parametrize("size", [(1, 1), (3, 200), (512, 512)])
def test_any_size_gets_an_outcome(name: str, size: tuple[int, int]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    (outcome,) = SCORERS.load(name).build()([picture], ["a red circle"])
    assert isinstance(outcome, Scored)


def test_a_batch_out_of_step_is_refused() -> None:
    scorer = SCORERS.load("composition").build()
    with pytest.raises(ValueError, match="1 images against 2 prompts"):
        scorer(blank(["a circle"]), ["a circle", "a star"])
    with pytest.raises(ValueError, match="uint8"):
        scorer([np.zeros((64, 64, 3))], ["a circle"])
