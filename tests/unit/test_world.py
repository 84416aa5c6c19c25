"""Captions and scenes are the same thing twice."""

import numpy as np
import pytest

from recast_eval.scorers.world import SIZE, Item, Scene, draw_card, parse_caption, write_caption
from recast_train.starter.scenes import FAMILIES, sample_scene


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_caption_is_read_back(family: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        scene = sample_scene(rng, family)  # type: ignore[arg-type]
        assert parse_caption(write_caption(scene)) == scene


@pytest.mark.parametrize(
    "text", ["", "a cat", 'the word "ox"', "five circles", "a red", "A circle"]
)
def test_what_is_not_a_caption_has_no_scene(text: str) -> None:
    assert parse_caption(text) is None


def test_a_card_is_drawn_in_its_colours() -> None:
    scene = Scene("colors", (Item("square", "red"),), background="white")
    card = np.asarray(draw_card(scene, np.random.default_rng(0)))
    assert card.shape == (SIZE, SIZE, 3)
    assert tuple(card[0, 0]) == (250, 250, 250)
    assert tuple(card[SIZE // 2, SIZE // 2]) == (220, 38, 38)
