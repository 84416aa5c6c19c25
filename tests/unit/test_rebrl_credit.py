"""Token weights and stage credits against closed forms (linear and cosine schedules)."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from diffusers import AmusedScheduler

from recast_train.rebrl import (
    PRESETS,
    RebalanceConfig,
    credit_weights,
    estimator_weights,
    full_mask_weights,
    mask_counts,
    nested_masks,
    preset,
    stage_credit,
    stage_density,
    stage_masks,
    stage_mix,
    token_credit,
    token_weight,
    trajectory_weights,
)

# Worked by hand: 16 tokens, 4 stages; by decode group W_g = sum over stages i <= g of a_i.
LINEAR = nested_masks([16, 12, 8, 4, 0])
COSINE = nested_masks(mask_counts(16, 4))
TABLE_A = {
    (0, "none"): ([1, 7 / 3, 13 / 3, 25 / 3], [1, 1, 1, 1]),
    (1, "none"): ([1, 2, 3, 4], [1, 0.75, 0.5, 0.25]),
    (2, "none"): ([1, 1.75, 2.25, 2.5], [1, 0.5625, 0.25, 0.0625]),
    (0, "inv_freq"): (
        [1, 7 / 6, 13 / 9, 25 / 12],
        [0.520833333, 0.361111111, 0.291666667, 0.25],
    ),
    (1, "inv_freq"): ([1, 1, 1, 1], [0.520833333, 0.270833333, 0.145833333, 0.0625]),
    (0, "exact"): ([1, 1, 1, 1], [0.444835165, 0.259780220, 0.175384615, 0.12]),
}
TABLE_C = {
    (0, "none"): ([1, 2.142857143, 3.597402597, 6.264069264], [1, 1, 1, 1]),
    (1, "none"): ([1, 2, 3, 4], [1, 0.875, 0.6875, 0.375]),
    (2, "none"): ([1, 1.875, 2.5625, 2.9375], [1, 0.765625, 0.47265625, 0.140625]),
    (0, "inv_freq"): (
        [1, 1.071428571, 1.199134199, 1.566017316],
        [0.416666667, 0.333333333, 0.287878788, 0.25],
    ),
    (1, "inv_freq"): ([1, 1, 1, 1], [0.416666667, 0.291666667, 0.197916667, 0.09375]),
}


def _groups(masks: np.ndarray) -> list[int]:
    """The first token of each decode group."""
    left = masks.sum(1)
    return [int(left[0] - n) for n in left]


@pytest.mark.parametrize(
    ("masks", "table"), [(LINEAR, TABLE_A), (COSINE, TABLE_C)], ids=["linear", "cosine"]
)
def test_tables_by_decode_group_and_stage(masks: np.ndarray, table: dict) -> None:
    for (power, token), (by_token, by_stage) in table.items():
        weights = credit_weights(masks, stage_power=power, token=token)
        np.testing.assert_allclose(token_weight(weights)[_groups(masks)], by_token, atol=1e-8)
        np.testing.assert_allclose(stage_credit(weights), by_stage, atol=1e-8)


def test_linear_closed_forms_of_eight_stages() -> None:
    masks = nested_masks(np.arange(8, -1, -1))  # one token a stage, the last one first
    late_first = slice(None, None, -1)
    elbo = token_weight(credit_weights(masks, stage_power=0, token="none"))[late_first]
    np.testing.assert_allclose(
        elbo,
        [21.742857, 13.742857, 9.742857, 7.076190, 5.076190, 3.476190, 2.142857, 1],
        atol=5e-7,
    )
    first = token_weight(credit_weights(masks, stage_power=1, token="none"))[late_first]
    np.testing.assert_allclose(first / 8, np.arange(8, 0, -1) / 8)
    second = token_weight(credit_weights(masks, stage_power=2, token="none"))[late_first]
    np.testing.assert_allclose(
        second / second[0],
        [1, 0.972222, 0.916667, 0.833333, 0.722222, 0.583333, 0.416667, 0.222222],
        atol=5e-7,
    )
    spread = {1: 8.0, 2: 4.5, 3: 3.19, 10: 1.39, 50: 1.00}
    for power, ratio in spread.items():  # no finite power is uniform
        got = token_weight(credit_weights(masks, stage_power=power, token="none"))
        assert got.max() / got.min() == pytest.approx(ratio, abs=6e-3)


def test_stage_credit_of_the_uniform_choice_has_its_closed_form() -> None:
    masks = nested_masks(np.arange(8, -1, -1))
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, 9))])
    want = [(harmonic[8] - harmonic[8 - j]) / 8 for j in range(8, 0, -1)]
    got = stage_credit(credit_weights(masks, stage_power=1, token="inv_freq"))
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_full_mask_weighs_all_tokens_once() -> None:
    weights = full_mask_weights(COSINE)
    np.testing.assert_array_equal(token_weight(weights), np.ones(16))
    np.testing.assert_array_equal(stage_credit(weights), [1, 0, 0, 0])
    with pytest.raises(ValueError, match="every token is masked"):
        full_mask_weights(COSINE[1:])


@pytest.mark.parametrize(
    ("balance", "by_token", "by_stage"),
    [
        (0.0, [1, 1, 1, 1], [0.125, 0.1875, 0.3125, 0.375]),
        (0.5, [1.444582, 1.179496, 0.913634, 0.834030], [0.180573, 0.221156, 0.285511, 0.312761]),
        (1.0, [2, 4 / 3, 0.8, 2 / 3], [0.25, 0.25, 0.25, 0.25]),
    ],
)
def test_trajectory_moves_from_token_to_stage_uniform(
    balance: float, by_token: list[float], by_stage: list[float]
) -> None:
    weights = trajectory_weights(COSINE, stage_balance=balance)
    np.testing.assert_allclose(token_weight(weights)[_groups(COSINE)], by_token, atol=1e-6)
    np.testing.assert_allclose(stage_credit(weights), by_stage, atol=1e-6)


@pytest.mark.parametrize(
    ("tokens", "steps", "kind", "revealed"),
    [
        (64, 8, "cosine", [2, 3, 6, 8, 10, 11, 12, 12]),
        (256, 8, "cosine", [5, 15, 24, 31, 39, 45, 48, 49]),
        (256, 12, "cosine", [3, 6, 11, 15, 18, 22, 26, 27, 31, 31, 33, 33]),
        (1024, 12, "cosine", [9, 26, 43, 60, 74, 88, 101, 111, 121, 126, 132, 133]),
        (256, 8, "linear", [32] * 8),
        (256, 8, "arccos", [21, 21, 21, 23, 25, 28, 35, 82]),
        (1, 1, "cosine", [1]),
        (2, 4, "cosine", [1, 0, 0, 1]),
    ],
)
def test_counts(tokens: int, steps: int, kind: str, revealed: list[int]) -> None:
    counts = mask_counts(tokens, steps, kind)  # type: ignore[arg-type]
    assert counts[0] == tokens
    assert counts[-1] == 0
    assert (-np.diff(counts)).tolist() == revealed


@pytest.mark.parametrize(("tokens", "steps"), [(64, 8), (256, 8), (16, 4), (256, 12)])
def test_counts_are_those_of_diffusers(tokens: int, steps: int) -> None:
    scheduler = AmusedScheduler(mask_token_id=4)
    scheduler.set_timesteps(steps)
    sample = torch.full((1, tokens), 4)
    left, generator = [tokens], torch.Generator().manual_seed(0)
    for timestep in scheduler.timesteps:
        logits = torch.zeros(1, tokens, 4)
        sample = scheduler.step(logits, timestep, sample, generator=generator).prev_sample
        left.append(int((sample == 4).sum()))
    want = mask_counts(tokens, steps).tolist()
    if (tokens, steps) == (256, 12):  # 256 cos(60 degrees) is 128, in float32 just below
        assert (want[8], left[8]) == (128, 127)
        want[8] = 127
    assert left == want


def test_masks_replay_the_decode_steps() -> None:
    masks = stage_masks([[0, 2, 1, 2], [1, 1, 0, 2]], 3)
    assert masks.shape == (2, 3, 4)
    assert masks[0].astype(int).tolist() == [[1, 1, 1, 1], [0, 1, 1, 1], [0, 1, 0, 1]]


def test_tokens_and_stages_that_nothing_masks_weigh_nothing() -> None:
    never = np.array([[True, True, False], [True, False, False], [False, False, False]])
    for token in ("none", "inv_freq", "exact"):
        weights = credit_weights(never, stage_power=1, token=token)
        assert np.isfinite(weights).all()
        assert weights[:, 2].tolist() == [0, 0, 0]
        assert stage_credit(weights)[2] == 0
    empty = nested_masks(mask_counts(2, 4))  # two stages reveal no token
    balanced = trajectory_weights(empty, stage_balance=1.0)
    np.testing.assert_allclose(stage_credit(balanced), [0.5, 0, 0, 0.5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mask_counts(0, 4), "at least 1"),
        (lambda: mask_counts(4, 0), "at least 1"),
        (lambda: mask_counts(4, 4, "sqrt"), "'sqrt'"),  # type: ignore[arg-type]
        (lambda: nested_masks([4, 5, 0]), "fall"),
        (lambda: stage_masks([0, 4], 4), "0..3"),
        (lambda: stage_masks([0.5], 4), "integers"),
        (lambda: credit_weights([[0, 1], [1, 1]], stage_power=1, token="none"), "nested"),
        (lambda: credit_weights([[2, 1], [1, 1]], stage_power=1, token="none"), "boolean"),
        (lambda: credit_weights([[1, 1]], stage_power=-1, token="none"), "at least 0"),
        (lambda: credit_weights([[1, 1]], stage_power=1, token="F"), "'F'"),  # type: ignore[arg-type]
        (lambda: credit_weights([True], stage_power=1, token="none"), "steps, tokens"),
        (lambda: trajectory_weights(LINEAR, stage_balance=np.nan), "finite"),
        (lambda: preset("grpo"), "unigrpo"),
        (lambda: RebalanceConfig(stage_power=-1, min_share=1), "min_share"),
        (lambda: stage_density(np.zeros(3), power=1, sampling="uniform"), "empty"),
        (lambda: stage_mix([[0.5, 0.5]], [1, 0]), "mass is 0"),
        (lambda: token_credit([[1.0]], LINEAR), "share T"),
    ],
)
def test_malformed_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_presets_have_the_token_weights_of_their_methods() -> None:
    def spread(name: str) -> float:
        weight = token_weight(estimator_weights(COSINE, PRESETS[name]))
        assert weight.mean() == pytest.approx(1)
        return float(weight.max() / weight.min())

    nested = ("unigrpo", "rebrl1", "rebrl2", "rebrl-token", "rebrl", "diffu-grpo", "mask-grpo")
    got = {name: round(spread(name), 4) for name in nested}
    assert got == {
        "unigrpo": 6.2641,
        "rebrl1": 4.0,
        "rebrl2": 2.9375,
        "rebrl-token": 1.566,
        "rebrl": 1.0,
        "diffu-grpo": 1.0,
        "mask-grpo": 1.0,
    }


def test_coupled_masks_cover_every_token_twice() -> None:
    half = np.arange(16) % 4 == 0
    masks = np.stack([np.ones(16, bool), half, ~half])
    raw = estimator_weights(masks, preset("coupled", normalize="none"))
    # 1/2 from the full mask; 1/2 / share from the set it is in
    np.testing.assert_allclose(token_weight(raw), np.where(half, 0.5 + 2, 0.5 + 0.5 / 0.75))


# ---- composition with a credit matrix -----------------------------------------------------

W = np.array([[0.25, 0.20, 0.10, 0.05], [0.0, 0.05, 0.15, 0.20]])
BUDGETS = np.array([0.6, 0.4])


def _fit(matrix: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    fitted = matrix.copy()
    for _ in range(4000):
        fitted *= (rows / fitted.sum(1))[:, None]
        fitted *= (columns / fitted.sum(0))[None]
    return fitted


def test_equal_columns_miss_the_budgets() -> None:
    weights = credit_weights(COSINE, stage_power=1, token="inv_freq")
    naive = token_credit(stage_mix(W, np.full(4, 0.25)), weights)
    np.testing.assert_allclose(naive.mean(1), [0.747917, 0.252083], atol=1e-6)
    np.testing.assert_allclose(naive.sum(0), 1)  # the total is right, its split is not


def test_columns_of_the_stage_credit_spend_the_budgets() -> None:
    weights = credit_weights(COSINE, stage_power=1, token="inv_freq")
    mass = stage_credit(weights)
    fitted = _fit(W, BUDGETS, mass)
    np.testing.assert_allclose(
        fitted,
        [[0.416667, 0.148467, 0.029161, 0.005705], [0, 0.143199, 0.168756, 0.088045]],
        atol=1e-6,
    )
    mix = stage_mix(fitted, mass)
    np.testing.assert_allclose(
        mix,
        [[1, 0.509031, 0.147338, 0.060856], [0, 0.490969, 0.852662, 0.939144]],
        atol=1e-6,
    )
    spent = token_credit(mix, weights)
    np.testing.assert_allclose(spent.mean(1), BUDGETS, atol=1e-9)
    np.testing.assert_allclose(spent.sum(0), 1, atol=1e-9)
    advantages = mix.T @ [1.0, -1.0]
    np.testing.assert_allclose(advantages, [1, 0.018062, -0.705323, -0.878288], atol=1e-6)


@pytest.mark.parametrize("name", ["unigrpo", "rebrl1", "rebrl2", "rebrl-token", "mask-grpo"])
def test_any_estimator_spends_the_budgets_on_its_own_columns(name: str) -> None:
    weights = estimator_weights(COSINE, PRESETS[name])
    mass = stage_credit(weights)
    spent = token_credit(stage_mix(_fit(W, BUDGETS, mass), mass), weights)
    np.testing.assert_allclose(spent.mean(1), BUDGETS, atol=1e-9)
