"""Laws of the edit distance behind both OCR scorers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recast_eval.scorers.text import asked_text, closeness, edit_distance

WORDS = st.text("ABC", max_size=8)


@given(WORDS, WORDS, WORDS)
def test_it_is_a_metric(a: str, b: str, c: str) -> None:
    assert edit_distance(a, b) == edit_distance(b, a)
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)
    assert abs(len(a) - len(b)) <= edit_distance(a, b) <= max(len(a), len(b))


@given(WORDS, st.text("ABC", min_size=1, max_size=8))
def test_closeness_is_a_share(read: str, asked: str) -> None:
    assert 0 <= closeness(read, asked) <= 1
    assert closeness(asked.lower(), asked) == 1


@pytest.mark.parametrize(
    ("read", "asked", "value"),
    [("OX", "OX", 1), ("0x", "OX", 1), ("OK", "OX", 0.5), ("", "OX", 0), ("ABCDEF", "OX", 0)],
)
def test_by_hand(read: str, asked: str, value: float) -> None:
    assert closeness(read, asked) == value


def test_digits_stay_digits_where_they_are_asked_for() -> None:
    assert closeness("O1", "01") == 0.5


def test_nothing_asked_is_refused() -> None:
    with pytest.raises(ValueError, match="no letter or digit"):
        closeness("A", "!?")


def test_quotes_of_both_kinds_are_found() -> None:
    assert asked_text('a sign "NO" and “GO”') == "NO GO"
    assert asked_text("a sign") is None
