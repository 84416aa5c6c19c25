from typing import Any

import numpy as np
import pytest

from recast_train.credit.apply import (
    normalise,
    reward_step_advantages,
    rms_constant,
    step_advantages,
    step_coefficients,
)

BUDGETS = np.array([2, 1, 1, 1]) / 5
STATIC = np.repeat((BUDGETS / 25)[:, None], 25, axis=1)


def epoch(seed: int = 0, samples: int = 96, groups: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    spread = np.array([0.03, 0.03, 0.04, 0.4])[:, None]
    return 0.5 + spread * rng.standard_normal((4, samples)), np.arange(samples) % groups


def peaked(seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    w = rng.random((4, 25))
    for _ in range(2000):
        w *= (BUDGETS / w.sum(1))[:, None]
        w /= 25 * w.sum(0)
    return w


@pytest.mark.parametrize("normaliser", ["group", "batch"])
def test_static_is_the_plain_weighted_sum_bit_for_bit(normaliser: Any) -> None:
    rewards, groups = epoch()
    each = normalise(rewards, groups, normaliser=normaliser)
    plain = sum(b * a for b, a in zip(BUDGETS, each, strict=True))
    got = step_advantages(
        rewards, groups, STATIC, budgets=BUDGETS, rms_match=True, normaliser=normaliser
    )
    assert (got == plain).all()


def test_static_pre_is_the_normalised_weighted_sum_bit_for_bit() -> None:
    rewards, groups = epoch()
    mixture = sum(b * r for b, r in zip(BUDGETS, rewards, strict=True))
    got = step_advantages(rewards, groups, STATIC, mode="pre", budgets=BUDGETS)
    assert (got == normalise(mixture, groups)).all()


def test_normalising_by_hand() -> None:
    # group 0: 1, 3 -> mean 2, sd 1; group 1: 5, 5 -> nothing to prefer
    got = normalise(np.array([[1.0, 5.0, 3.0, 5.0]]), [0, 1, 0, 1])
    np.testing.assert_allclose(got, [[-1, 0, 1, 0]])
    # all four: mean 3.5, sd sqrt((6.25+2.25+.25+2.25)/4) = sqrt(2.75)
    got = normalise(np.array([[1.0, 5.0, 3.0, 5.0]]), [0, 1, 0, 1], normaliser="batch")
    np.testing.assert_allclose(got, np.array([[-1, 0, 1, 0]]) / np.sqrt(2.75))


def test_budgets_are_exact_in_advantage_mode() -> None:
    rewards, groups = epoch()
    w = peaked()
    each = normalise(rewards, groups)
    mixed = step_advantages(rewards, groups, w)
    np.testing.assert_allclose(mixed.mean(0), BUDGETS @ each, atol=1e-12)


def test_loss_mode_equals_weighting_k_losses() -> None:
    rewards, groups = epoch()
    w, clip = peaked(), 1.0
    each = np.clip(normalise(rewards, groups), -clip, clip) / (2 * clip) + 0.5
    rng = np.random.default_rng(3)
    good, bad = rng.random((25, 96)), rng.random((25, 96))
    losses = each[:, None] * good + (1 - each[:, None]) * bad
    q = step_advantages(rewards, groups, w, mode="loss", clip=clip) / (2 * clip) + 0.5
    want = (25 * w[:, :, None] * losses).sum(0)
    np.testing.assert_allclose(q * good + (1 - q) * bad, want, atol=1e-9)


def test_rms_match_gives_the_static_root_mean_square() -> None:
    rewards, groups = epoch()
    rms = lambda a: np.sqrt((a**2).mean())  # noqa: E731
    static = step_advantages(rewards, groups, STATIC)
    free = step_advantages(rewards, groups, peaked())
    matched = step_advantages(rewards, groups, peaked(), rms_match=True)
    assert rms(free) > 1.01 * rms(static)
    assert rms(matched) == pytest.approx(rms(static), rel=1e-9)
    ratio = matched / free
    np.testing.assert_allclose(ratio, ratio[0, 0])


def test_per_reward_parts_mix_to_the_whole() -> None:
    rewards, groups = epoch()
    parts = reward_step_advantages(rewards, groups, peaked(), rms_match=True)
    assert parts.shape == (4, 25, 96)
    whole = step_advantages(rewards, groups, peaked(), rms_match=True)
    np.testing.assert_allclose(np.einsum("k,ktn->tn", BUDGETS, parts), whole, atol=1e-9)


def test_index_weight_at_one_step_moves_that_step_only() -> None:
    rewards, groups = epoch()
    w = STATIC.copy()
    w[:, 7] = [0.04, 0, 0, 0]
    moved = step_advantages(rewards, groups, w) != step_advantages(rewards, groups, STATIC)
    assert moved[7].any()
    assert not np.delete(moved, 7, axis=0).any()


def test_a_failed_reward_asks_for_nothing() -> None:
    rewards, groups = epoch()
    rewards[2, 5] = np.nan
    assert normalise(rewards, groups)[2, 5] == 0
    kept = np.delete(rewards, 5, axis=1)
    others = normalise(kept, np.delete(groups, 5))
    np.testing.assert_allclose(np.delete(normalise(rewards, groups)[2], 5), others[2])
    assert (step_advantages(rewards, groups, STATIC, mode="pre")[:, 5] == 0).all()
    assert np.isfinite(step_advantages(rewards, groups, STATIC)).all()


def test_degenerate_sizes() -> None:
    assert step_advantages([[3.0]], [0], [[1.0]]).tolist() == [[0.0]]
    assert normalise([[np.nan, np.nan]], [0, 0]).tolist() == [[0.0, 0.0]]
    zero = np.array([[0.5, 0.5], [0.0, 0.0]])
    nothing = reward_step_advantages([[1.0, 2.0], [4.0, 3.0]], [0, 0], zero)
    assert (nothing[1] == 0).all()
    assert rms_constant(np.zeros((2, 4)), [[1.0, 0.5], [0.0, 0.5]]) == 1.0


def test_density_replaces_uniform_training() -> None:
    w = np.array([[0.3, 0.1], [0.45, 0.15]])
    np.testing.assert_allclose(step_coefficients(w, density=[0.75, 0.25]), [[0.4, 0.4], [0.6, 0.6]])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"mode": "mean"}, "mode"),
        ({"normaliser": "row"}, "normaliser"),
        ({"clip": 0.0}, "clip"),
        ({"eps": 0.0}, "eps"),
        ({"weights": -STATIC}, "non-negative"),
        ({"weights": STATIC[:2]}, "share K"),
        ({"groups": [0]}, "groups"),
        ({"budgets": [1.0]}, "budgets"),
        ({"density": [1.0]}, "density"),
        ({"rewards": np.full((4, 96), np.inf)}, "finite"),
    ],
)
def test_malformed_input_names_the_law(change: dict[str, Any], word: str) -> None:
    rewards, groups = epoch()
    given = {"rewards": rewards, "groups": groups, "weights": STATIC, **change}
    with pytest.raises(ValueError, match=word):
        step_advantages(given.pop("rewards"), given.pop("groups"), given.pop("weights"), **given)


def test_pre_has_no_parts() -> None:
    rewards, groups = epoch()
    with pytest.raises(ValueError, match="pre"):
        reward_step_advantages(rewards, groups, STATIC, mode="pre")


@pytest.mark.parametrize("mode", ["advantage", "loss"])
def test_rms_match_leaves_static_credit_alone_under_a_methods_own_columns(mode: Any) -> None:
    rewards, groups = epoch()
    mass = np.array([*range(1, 25), 0.0]) / 300  # a step that the method does not train
    static = np.outer(BUDGETS, mass)
    given: dict[str, Any] = {"mode": mode, "budgets": BUDGETS, "column_mass": mass}
    free = step_advantages(rewards, groups, static, **given)
    assert (step_advantages(rewards, groups, static, rms_match=True, **given) == free).all()
    parts = [
        reward_step_advantages(rewards, groups, static, rms_match=match, **given)
        for match in (True, False)
    ]
    assert (parts[0] == parts[1]).all()


def test_rms_match_undoes_a_peaked_w_but_not_the_methods_columns() -> None:
    rewards, groups = epoch()
    mass = np.arange(1.0, 26) / 325
    rms = lambda a: np.sqrt((a**2).mean())  # noqa: E731
    w = peaked() * 25 * mass  # columns are the mass
    static = step_advantages(rewards, groups, np.outer(w.sum(1), mass))
    matched = step_advantages(rewards, groups, w, rms_match=True, column_mass=mass)
    assert rms(matched) == pytest.approx(rms(static), rel=1e-9)
    # columns that the credit itself chose are a loudness: they are divided out
    own = step_advantages(rewards, groups, np.outer(BUDGETS, mass), rms_match=True)
    assert rms(own) == pytest.approx(rms(step_advantages(rewards, groups, STATIC)), rel=1e-9)
    with pytest.raises(ValueError, match="column_mass"):
        rms_constant(np.eye(4), w, column_mass=mass[:3])


def test_equal_columns_keep_their_constant() -> None:
    rewards, groups = epoch()
    each, c = normalise(rewards, groups), 25 * peaked()
    second = each @ each.T / 96
    lam = c.mean(axis=1)
    want = np.sqrt(lam @ second @ lam / (np.einsum("kt,kl,lt->", c, second, c) / 25))
    assert rms_constant(each, c) == pytest.approx(want, rel=1e-14)
    assert rms_constant(each, c, column_mass=np.ones(25)) == pytest.approx(want, rel=1e-14)


@pytest.mark.parametrize("normaliser", ["group", "batch"])
def test_a_reward_that_a_whole_group_lacks_leaves_the_others_in_pre(normaliser: Any) -> None:
    # groups of text-free prompts have no OCR: there the mixture is of the other rewards
    rewards, groups = epoch()
    lacks = groups < 2
    rewards[1, lacks] = np.nan
    given: dict[str, Any] = {"mode": "pre", "normaliser": normaliser}
    got = step_advantages(rewards, groups, peaked(), **given)
    assert (got != 0).all()
    rest = step_advantages(
        np.delete(rewards, 1, 0)[:, lacks], groups[lacks], np.delete(peaked(), 1, 0), mode="pre"
    )
    if normaliser == "group":
        np.testing.assert_allclose(got[:, lacks], rest, atol=1e-9)
    whole = np.where(lacks, np.nanmean(rewards[1]), rewards[1])  # it tells these images nothing
    rewards[1] = whole
    np.testing.assert_allclose(got, step_advantages(rewards, groups, peaked(), **given), atol=1e-9)


def test_a_reward_that_nobody_has_leaves_the_others_in_pre() -> None:
    rewards, groups = epoch()
    rewards[1] = np.nan
    got = step_advantages(rewards, groups, STATIC, mode="pre")
    rest = step_advantages(np.delete(rewards, 1, 0), groups, np.delete(STATIC, 1, 0), mode="pre")
    np.testing.assert_allclose(got, rest, atol=1e-9)


def test_parts_are_cut_where_the_mixed_path_cuts() -> None:
    # one image far from all others: the z-score over the epoch is beyond any clip
    rewards, groups = epoch()
    rewards[:, 0] += 10.0
    given: dict[str, Any] = {"normaliser": "batch", "budgets": BUDGETS}
    for mode, clip in (("advantage", None), ("loss", 1.0)):
        parts = reward_step_advantages(rewards, groups, STATIC, mode=mode, clip=1.0, **given)
        whole = step_advantages(rewards, groups, STATIC, mode=mode, clip=clip, **given)
        np.testing.assert_allclose(np.einsum("k,ktn->tn", BUDGETS, parts), whole, atol=1e-9)
