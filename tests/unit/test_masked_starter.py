"""The masked starter's cards and pre-training, and the reward for its squares."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

import recast_train.commands
from recast_eval.console import build_app
from recast_eval.errors import ConfigError
from recast_eval.records import Failed, Scored
from recast_eval.scorers import SCORERS
from recast_eval.scorers.world import Item, Scene, Word, draw_card
from recast_train.starter.masked import mask_tokens, pretrain_masked
from recast_train.starter.masked_parts import GRID, MASK, PALETTE, draw_token_cards, to_tokens
from recast_train.tensorfile import load_state


def _picture(tokens: np.ndarray) -> np.ndarray:
    colors = np.array(PALETTE, np.uint8)[tokens.reshape(GRID, GRID)]
    return colors.repeat(4, axis=0).repeat(4, axis=1)


def test_a_card_becomes_squares_of_its_own_colours() -> None:
    scene = Scene("colors", (Item("circle", "red"),), background="white")
    tokens = to_tokens(np.asarray(draw_card(scene, np.random.default_rng(0))))
    red, white = 0, 6
    assert set(np.unique(tokens)) == {red, white}  # no orange or pink at the smoothed edge
    assert 0.1 < (tokens == red).mean() < 0.5
    assert (tokens[[0, -1]] == white).all()


def test_cards_depend_on_the_seed_alone_and_hold_no_words() -> None:
    captions, grids = draw_token_cards(40, 3)
    again, same = draw_token_cards(40, 3)
    assert captions == again
    assert (grids == same).all()
    assert grids.max() < MASK
    assert not any("word" in c for c in captions)


def test_every_row_hides_at_least_one_token() -> None:
    rng = torch.Generator().manual_seed(0)
    seen, hidden = mask_tokens(torch.zeros(64, 256, dtype=torch.long), rng)
    assert (hidden.sum(1) >= 1).all()
    assert torch.equal(seen == MASK, hidden)
    # the share is cos(pi u / 2) with u spread evenly: its mean is 2 / pi
    assert float(hidden.float().mean()) == pytest.approx(2 / np.pi, abs=0.02)


def test_pre_training_that_was_stopped_ends_in_the_same_weights(tmp_path: Path) -> None:
    before = torch.get_rng_state()

    def build(work: Path, stop: int | None) -> dict[str, Any]:
        for done in pretrain_masked(work, tmp_path / "out", steps=4, save_every=2, cards=60):
            if done == stop:
                break  # as a kill between two saves does
        return load_state(work / "masked.safetensors")

    whole = build(tmp_path / "whole", None)
    assert build(tmp_path / "broken", 2)["step"] == 2
    resumed = build(tmp_path / "broken", None)
    assert whole["step"] == resumed["step"] == 4
    for mine, other in zip(
        whole["params"] + whole["ema"], resumed["params"] + resumed["ema"], strict=True
    ):
        assert torch.equal(mine, other)
    assert torch.equal(torch.get_rng_state(), before)
    assert (tmp_path / "out" / "palette.json").is_file()


def _tidy(picture: np.ndarray) -> float:
    (outcome,) = SCORERS.load("tidy").build()([picture], ["a red square"])
    assert isinstance(outcome, Scored)
    return outcome.value


def test_tidy_wants_whole_things_in_one_colour() -> None:
    card = np.full((GRID, GRID), 6)
    card[4:10, 4:10] = 0
    clean = _tidy(_picture(card))
    assert clean == pytest.approx(1.0)
    speck, two_tone = card.copy(), card.copy()
    speck[12, 12] = 0
    two_tone[5, 5] = 4
    noise = np.random.default_rng(0).integers(0, MASK, (GRID, GRID))
    blank, filled = np.full((GRID, GRID), 6), np.zeros((GRID, GRID), int)
    filled[0] = 6
    filled[:, 0] = filled[:, -1] = filled[-1] = 6
    assert _tidy(_picture(speck)) < clean
    assert _tidy(_picture(two_tone)) < clean
    assert _tidy(_picture(noise)) < 0.3
    assert _tidy(_picture(blank)) == 0
    assert _tidy(_picture(filled)) < 0.2


def test_tidy_says_which_pictures_it_cannot_take() -> None:
    (outcome,) = SCORERS.load("tidy").build()([np.zeros((30, 30, 3), np.uint8)], [""])
    assert isinstance(outcome, Failed)


def test_a_word_is_no_subject_of_the_masked_starter() -> None:
    picture = np.asarray(draw_card(Scene("ocr", word=Word("OX")), np.random.default_rng(0)))
    assert to_tokens(picture).shape == (GRID, GRID)


def test_the_command_resumes_a_masked_build_and_writes_it(tmp_path: Path) -> None:
    def first_half(work: Path) -> None:
        for _ in pretrain_masked(work, tmp_path / "half", steps=4, save_every=2, cards=60):
            return  # as a kill between two saves does

    def command(*extra: str) -> Result:
        words = ["starter", "build", "--masked", "--steps", "4", *extra]
        return CliRunner().invoke(build_app(recast_train.commands, ""), words)

    work, whole = tmp_path / "work", tmp_path / "whole"
    first_half(work)
    for _ in pretrain_masked(whole, tmp_path / "straight", steps=4, save_every=4, cards=60):
        pass
    out = tmp_path / "out"
    done = command("--work", str(work), "--out", str(out))
    assert done.exit_code == 0, done.output
    assert str(out) in done.output
    weights = "transformer/diffusion_pytorch_model.safetensors"
    assert (out / weights).read_bytes() == (tmp_path / "straight" / weights).read_bytes()
    # Finished work makes another folder without a step.
    again = command("--work", str(work), "--out", str(tmp_path / "again"))
    assert again.exit_code == 0, again.output
    assert (tmp_path / "again" / weights).read_bytes() == (out / weights).read_bytes()


def test_the_masked_starter_has_no_autoencoder_to_train(tmp_path: Path) -> None:
    words = ["starter", "build", "--masked", "--vae-steps", "5", "--work", str(tmp_path / "w")]
    done = CliRunner().invoke(build_app(recast_train.commands, ""), words)
    assert isinstance(done.exception, ConfigError)
    assert "--vae-steps" in str(done.exception)
    assert not (tmp_path / "w").exists()
