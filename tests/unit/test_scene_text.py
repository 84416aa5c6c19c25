"""Text in whole photos: the published rule for what is asked, and two engines that read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFont

from recast_eval.records import Failed, Scored
from recast_eval.scorers import SCORERS
from recast_eval.scorers.text import first_quoted, scene_closeness


@pytest.mark.parametrize(
    ("prompt", "asked"),
    [
        ('a sign that says "Open" beside one that says "Shut"', "Open"),
        ("a mug with “Good day”", "Good day"),
        ("no quotes", None),
        ('nothing between "  "', None),
        ('one quote " alone', None),
        ("it's 'single'", None),
    ],
)
def test_the_first_double_quotes_count(prompt: str, asked: str | None) -> None:
    assert first_quoted(prompt) == asked


@pytest.mark.parametrize(
    ("read", "asked", "value"),
    [
        ("open daily", "OPEN DAILY", 1.0),
        ("we are Open Daily from 9", "open daily", 1.0),
        ("opendaily", "open daily", 1.0),
        ("open", "opens", 0.8),
        ("", "abc", 0.0),
        ("zzzzzzzzzzzz", "abc", 0.0),
        ("its", "it's", 0.75),
    ],
)
def test_closeness_in_closed_form(read: str, asked: str, value: float) -> None:
    assert scene_closeness(read, asked) == pytest.approx(value)


def test_nothing_asked_is_refused() -> None:
    with pytest.raises(ValueError, match="no character"):
        scene_closeness("abc", " \t")


@given(st.text(max_size=12), st.text(min_size=1, max_size=12).filter(lambda t: bool(t.split())))
def test_in_range_and_one_where_contained(read: str, asked: str) -> None:
    assert 0 <= scene_closeness(read, asked) <= 1
    assert scene_closeness(read + asked + read, asked) == 1


def photo(text: str) -> np.ndarray:
    """White words across a blurred scene of dark colours."""
    coarse = np.random.default_rng(0).integers(0, 86, (6, 6, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((320, 320), Image.Resampling.BICUBIC)
    font = ImageFont.load_default(size=40)
    for i, line in enumerate(text.split("\n")):
        ImageDraw.Draw(image).text((40, 80 + i * 80), line, font=font, fill="white")
    return np.asarray(image)


@pytest.mark.parametrize(
    ("name", "package"),
    [("ocr-scene", "rapidocr_onnxruntime"), ("ocr-scene-tesseract", "tesserocr")],
)
def test_an_engine_reads_a_photo(name: str, package: str) -> None:
    pytest.importorskip(package)
    scorer = SCORERS.load(name).build()
    right, wrong, unasked = scorer(
        [photo("Hello\nWorld 42")] * 3,
        ['a wall with "Hello World 42"', 'a wall with "Fresh Bread"', "a wall"],
    )
    assert isinstance(right, Scored)
    assert right.value == 1.0, right.detail
    assert isinstance(wrong, Scored)
    assert wrong.value < 0.5, wrong.detail
    assert isinstance(unasked, Failed)
    assert unasked.reason == "not_applicable"
