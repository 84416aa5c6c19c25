"""Laws of masked-diffusion credit that hold for any nested masks."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recast_train.rebrl import (
    PRESETS,
    credit_weights,
    estimator_weights,
    mask_counts,
    nested_masks,
    rebalanced_loss,
    stage_credit,
    stage_density,
    stage_masks,
    token_weight,
    trajectory_weights,
)

seeds = st.integers(0, 2**32 - 1)


@st.composite
def rollouts(draw: st.DrawFn) -> np.ndarray:
    """Nested masks of random decode orders, (batch, T, N)."""
    steps, tokens = draw(st.integers(1, 9)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(seeds))
    return stage_masks(rng.integers(0, steps, (3, tokens)), steps)


@given(masks=rollouts())
def test_power_one_with_inverse_frequency_is_exactly_uniform(masks: np.ndarray) -> None:
    weights = credit_weights(masks, stage_power=1, token="inv_freq")
    np.testing.assert_allclose(token_weight(weights), 1, rtol=1e-12)


@given(masks=rollouts(), power=st.floats(0, 5))
def test_the_exact_divisor_is_uniform_for_any_power(masks: np.ndarray, power: float) -> None:
    weights = credit_weights(masks, stage_power=power, token="exact")
    np.testing.assert_allclose(token_weight(weights), 1, rtol=1e-9)


@given(masks=rollouts(), power=st.floats(0, 3), token=st.sampled_from(["none", "inv_freq"]))
def test_stage_credit_adds_up_to_the_mean_token_weight(
    masks: np.ndarray, power: float, token: str
) -> None:
    weights = credit_weights(masks, stage_power=power, token=token)  # type: ignore[arg-type]
    np.testing.assert_allclose(stage_credit(weights).sum(-1), token_weight(weights).mean(-1))
    assert (weights[~masks] == 0).all()


@given(masks=rollouts(), balance=st.floats(-1, 2))
def test_trajectory_keeps_its_mass(masks: np.ndarray, balance: float) -> None:
    weights = trajectory_weights(masks, stage_balance=balance)
    np.testing.assert_allclose(token_weight(weights).mean(-1), 1, rtol=1e-9)


@given(masks=rollouts(), name=st.sampled_from(sorted(set(PRESETS) - {"coupled", "maskgrpo"})))
def test_presets_hold_the_mean_token_weight_at_one(masks: np.ndarray, name: str) -> None:
    weights = estimator_weights(masks, PRESETS[name])
    np.testing.assert_allclose(token_weight(weights).mean(-1), 1, rtol=1e-9)


@given(tokens=st.integers(1, 400), steps=st.integers(1, 40))
def test_counts_fall_from_all_to_none(tokens: int, steps: int) -> None:
    for kind in ("cosine", "linear", "arccos"):
        counts = mask_counts(tokens, steps, kind)  # type: ignore[arg-type]
        assert len(counts) == steps + 1
        assert counts[0] == tokens
        assert counts[-1] == 0
        revealed = -np.diff(counts)
        assert (revealed >= (1 if tokens >= steps else 0)).all()


def test_independent_masks_weigh_every_token_by_the_number_of_stages() -> None:
    rng = np.random.default_rng(0)
    shares = np.arange(1, 5)[::-1] / 4
    masks = rng.random((20_000, 4, 16)) < shares[:, None]
    weights = credit_weights(masks, stage_power=0, token="none", nested=False)
    # sd of W_k is about 1.6: six standard errors of the mean over 20,000 draws
    np.testing.assert_allclose(token_weight(weights).mean(0), 4, atol=6 * 1.6 / 20_000**0.5)


@pytest.mark.parametrize("sampling", ["uniform", "lambda"])
def test_drawn_stages_are_unbiased_for_all_of_them(sampling: str) -> None:
    masks = nested_masks(mask_counts(32, 8))
    weights = credit_weights(masks, stage_power=1, token="inv_freq")
    density = stage_density(masks.mean(1), power=1, sampling=sampling)  # type: ignore[arg-type]
    # the expectation over one drawn stage, written out
    drawn = sum(density[i] * weights[i] / density[i] for i in range(8))
    np.testing.assert_allclose(drawn, weights.sum(0))
    assert density.sum() == pytest.approx(1)


# ---- the loss ------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", ["token", "sequence"])
@given(masks=rollouts(), name=st.sampled_from(sorted(set(PRESETS) - {"coupled", "maskgrpo"})))
def test_probe_gradient_is_the_token_weight(ratio: str, masks: np.ndarray, name: str) -> None:
    """If log pi(o_k | any state) = theta_k, N dJ/dtheta_k at theta_old with A = 1 is W_k."""
    weights = estimator_weights(masks[0], PRESETS[name])
    steps, tokens = weights.shape
    theta = torch.zeros(tokens, dtype=torch.float64, requires_grad=True)
    log_prob = theta.expand(steps, tokens)
    result = rebalanced_loss(
        log_prob,
        torch.zeros(steps, tokens, dtype=torch.float64),
        torch.ones(steps, dtype=torch.float64),
        torch.from_numpy(weights),
        ratio=ratio,  # type: ignore[arg-type]
    )
    (gradient,) = torch.autograd.grad(-result.loss * steps, theta)
    np.testing.assert_allclose(tokens * gradient.numpy(), token_weight(weights), rtol=1e-10)


@given(seed=seeds, pieces=st.integers(1, 6))
def test_micro_batches_add_up_to_the_batch(seed: int, pieces: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows, tokens = 6, 10

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    new, old, reference = -draw(rows, tokens).abs(), -draw(rows, tokens).abs(), draw(rows, tokens)
    advantage, weights = draw(rows), draw(rows, tokens).clamp_min(0)
    whole = rebalanced_loss(new, old, advantage, weights, reference_log_prob=reference)
    loss, penalty = torch.zeros(2, dtype=torch.float64)
    for part in torch.arange(rows).tensor_split(pieces):
        piece = rebalanced_loss(
            new[part],
            old[part],
            advantage[part],
            weights[part],
            reference_log_prob=reference[part],
        )
        loss = loss + piece.loss * len(part) / rows
        penalty = penalty + piece.penalty * len(part) / rows
    torch.testing.assert_close(loss, whole.loss, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(penalty, whole.penalty, rtol=1e-12, atol=1e-12)


def test_the_clip_acts_on_ratios_that_left_its_range_the_good_way() -> None:
    old = torch.zeros(2, 2)
    new = torch.log(torch.tensor([[1.5, 0.5], [1.5, 0.5]]))
    result = rebalanced_loss(new, old, torch.tensor([1.0, -1.0]), torch.ones(2, 2))
    # A > 0: min(1.5, 1.2) + min(.5, .8); A < 0: min(-1.5, -1.2) + min(-.5, -.8)
    assert float(result.loss) == pytest.approx(-((1.2 + 0.5) / 2 + (-1.5 - 0.8) / 2) / 2)
    assert float(result.clip_fraction) == 0.5


def test_hidden_tokens_reach_neither_loss_nor_gradient() -> None:
    new = torch.tensor([[0.0, -torch.inf]], requires_grad=True)
    weights = torch.tensor([[1.0, 0.0]])
    result = rebalanced_loss(
        new, torch.zeros(1, 2), torch.ones(1), weights, reference_log_prob=torch.zeros(1, 2)
    )
    (result.loss + result.penalty).backward()
    assert new.grad is not None
    assert torch.isfinite(result.loss)
    assert new.grad.tolist() == [[-0.5, 0.0]]


def test_no_stage_axis_is_broadcast() -> None:
    with pytest.raises(ValueError, match="alike"):
        rebalanced_loss(torch.zeros(1, 4), torch.zeros(1, 4), torch.zeros(1), torch.ones(3, 1, 4))
