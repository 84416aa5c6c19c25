"""Training of the towers: which captions exclude each other, and resuming."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recast_eval.scorers.towers import TwoTower, letter_tokens, to_input, word_tokens
from recast_eval.scorers.world import parse_caption, write_caption
from recast_train.starter.scenes import sample_scene
from recast_train.starter.towers import contradict, near_miss, tower_loss, train_tower


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("a star", "a red star on a white card", False),
        ("a star", "a circle", True),
        ("a red star", "a blue star", True),
        ("two stars", "three stars", True),
        ("a star on a white card", "a star on a black card", True),
        ("a star and a ring", "a ring and a star", False),
        ("a star and a ring", "a star above a ring", False),
        ("a star above a ring", "a ring below a star", False),
        ("a star above a ring", "a ring above a star", True),
        ("a star above a ring", "a star left of a ring", True),
        ("a red star and a blue ring", "a blue star and a red ring", True),
        ('the word "OX"', 'the word "OX" in red', False),
        ('the word "OX"', 'the word "OY"', True),
        ('the word "OX"', "a star", True),
    ],
)
def test_what_excludes_what(first: str, second: str, expected: bool) -> None:
    a, b = parse_caption(first), parse_caption(second)
    assert a is not None
    assert b is not None
    assert contradict(a, b) is expected
    assert contradict(b, a) is expected


@given(st.integers(0, 10**6))
def test_a_near_miss_excludes_its_scene_and_stays_a_caption(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scene = sample_scene(rng)
    miss = near_miss(scene, rng)
    assert contradict(scene, miss)
    assert not contradict(scene, scene)
    assert parse_caption(write_caption(miss)) is not None


def test_tokens_tell_captions_apart_and_end_in_padding() -> None:
    one, other = 'the word "OX" in red', 'the word "XO" in red'
    for tokens in (word_tokens([one, other]), letter_tokens([one, other])):
        assert not torch.equal(tokens[0], tokens[1])
        assert (tokens[:, -1] == 0).all()
    assert (word_tokens(["a purple zebra"])[0, :3] > 0).all()


@pytest.mark.parametrize("kind", ["conv", "patch"])
def test_vectors_have_length_one(kind: str) -> None:
    model = TwoTower(kind)  # type: ignore[arg-type]
    cards = to_input([np.zeros((64, 64, 3), np.uint8), np.full((128, 96, 3), 200, np.uint8)])
    for vectors in (model.see(cards), model.read(["a star", "a ring"])):
        assert torch.allclose(vectors.norm(dim=1), torch.ones(2), atol=1e-5)


def test_loss_is_a_function_of_the_seed_and_starts_near_chance() -> None:
    torch.manual_seed(0)
    model = TwoTower("conv")
    first = tower_loss(model, 0, (1, 2)).item()
    assert first == tower_loss(model, 0, (1, 2)).item()
    assert first != tower_loss(model, 0, (1, 3)).item()
    assert 8 < first < 11.5  # two choices among 128 and 80: ln 128 + ln 80 = 9.2, less or more


def test_training_resumes_to_the_same_weights(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    expected = train_tower(whole, "alignment", steps=3)

    def stop(record: logging.LogRecord) -> bool:
        if "step 3/3" in record.getMessage():
            raise InterruptedError  # the state of step 2 is the last one saved
        return True

    log = logging.getLogger("recast_train.starter.towers")
    level = log.level
    log.setLevel(logging.INFO)
    log.addFilter(stop)
    with pytest.raises(InterruptedError):
        train_tower(cut, "alignment", steps=3, save_every=1)
    log.removeFilter(stop)
    log.setLevel(level)
    resumed = train_tower(cut, "alignment", steps=3)
    for (name, a), b in zip(
        expected.state_dict().items(), resumed.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b), name
