"""Closed forms of the min-norm point, and the guards around it."""

import numpy as np
import pytest
import torch

from recast_train.gradients import (
    balance,
    cagrad_weights,
    cosines,
    min_norm_weights,
    pcgrad_weights,
)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((1.0, 0.0), (0.0, 1.0)),
        ((3.0, 0.0), (1.0, 1.0)),
        ((1.0, 0.2), (-2.0, 0.4)),
        ((2, 0), (9, 1)),
    ],
)
def test_two_gradients(first: tuple[float, float], second: tuple[float, float]) -> None:
    g_1, g_2 = np.array(first), np.array(second)
    # On the line g_2 + gamma (g_1 - g_2) the foot of the origin is at (g_2 - g_1).g_2 / |.|^2.
    gamma = np.clip((g_2 - g_1) @ g_2 / ((g_1 - g_2) @ (g_1 - g_2)), 0, 1)
    rows = np.stack([g_1, g_2])
    np.testing.assert_allclose(min_norm_weights(rows @ rows.T), [gamma, 1 - gamma], atol=1e-12)


def test_orthogonal_gradients_weigh_by_inverse_square() -> None:
    # min sum w_k^2 n_k^2 on the simplex: w_k prop 1 / n_k^2 = (1, 1/4, 1/16) / (21/16).
    np.testing.assert_allclose(
        min_norm_weights(np.diag([1.0, 4.0, 16.0])), np.array([16, 4, 1]) / 21, atol=1e-12
    )


def test_equal_gradients_share() -> None:
    np.testing.assert_allclose(min_norm_weights(np.ones((4, 4))), np.full(4, 0.25), atol=1e-9)


def test_one_gradient_and_none() -> None:
    assert min_norm_weights([[7.0]]) == pytest.approx([1.0])
    np.testing.assert_array_equal(min_norm_weights(np.zeros((2, 2))), [0.5, 0.5])


def test_opposite_gradients_cancel() -> None:
    found = balance([[1.0, -2.0], [-2.0, 4.0]])
    np.testing.assert_allclose(found.alpha, [0.5, 0.5], atol=1e-9)
    assert found.worst_cosine == pytest.approx(0.0, abs=1e-6)


def test_nearly_equal_gradients_are_exact() -> None:
    gap = 1e-6
    rows = np.array([[1.0, gap], [1.0, -gap], [1.0 + gap, 0.0]])
    weights = min_norm_weights(rows @ rows.T)
    assert weights @ rows @ rows.T @ weights == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("gram", "law"),
    [
        ([[1.0, 2.0]], "(K, K)"),
        (np.zeros((0, 0)), "(K, K)"),
        ([[np.nan]], "finite"),
        ([[1.0, 0.5], [0.2, 1.0]], "symmetric"),
        ([[1.0, 2.0], [2.0, 1.0]], "semi-definite, eigenvalue -1"),
    ],
)
def test_what_is_no_gram_matrix(gram: object, law: str) -> None:
    with pytest.raises(ValueError, match=law.replace("(", r"\(").replace(")", r"\)")):
        min_norm_weights(gram)  # type: ignore[arg-type]


def test_a_reward_without_signal_is_left_out() -> None:
    gram = np.zeros((3, 3))
    gram[:2, :2] = [[4.0, 0.0], [0.0, 9.0]]
    found = balance(gram)
    np.testing.assert_allclose(found.alpha, [0.5, 0.5, 0.0], atol=1e-12)
    # Mean norm of the active two is 2.5, so alpha * 2.5 / norm.
    np.testing.assert_allclose(found.weights, [0.625, 2.5 / 6, 0.0], atol=1e-12)
    # Off-policy its gradient is not zero but a pull to the old policy: told apart by the caller.
    gram[2, 2] = 1.0
    np.testing.assert_allclose(balance(gram, [True, True, False]).weights, found.weights)


def test_no_reward_has_signal() -> None:
    found = balance(np.zeros((2, 2)))
    assert not found.alpha.any()
    assert not found.weights.any()
    assert found.worst_cosine == 0.0


def test_active_has_the_length_of_the_gram_matrix() -> None:
    with pytest.raises(ValueError, match="active"):
        balance(np.eye(3), [True, False])


def test_cosines() -> None:
    np.testing.assert_allclose(
        cosines([[4.0, 3.0, 0.0], [3.0, 9.0, 0.0], [0.0, 0.0, 0.0]]),
        [[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.0]],
    )


def test_pcgrad_of_two() -> None:
    # g_1.g_2 = -1: each loses its projection, C = [[1, 1/4], [1, 1]] with |g_1|^2 = 1, |g_2|^2 = 4.
    weights = pcgrad_weights([[1.0, -1.0], [-1.0, 4.0]], seed=0)
    np.testing.assert_allclose(weights, [2.0, 1.25])


def test_pcgrad_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    pcgrad_weights(np.eye(3), seed=5)
    assert torch.equal(before, torch.random.get_rng_state())


def test_cagrad_without_radius_is_the_mean() -> None:
    np.testing.assert_allclose(
        cagrad_weights([[1.0, -0.5], [-0.5, 9.0]], radius=0.0), [0.5, 0.5], atol=1e-9
    )
    with pytest.raises(ValueError, match="radius"):
        cagrad_weights(np.eye(2), radius=-1.0)


def test_rivals_refuse_a_zero_gradient() -> None:
    for rival in (lambda gram: pcgrad_weights(gram, 0), cagrad_weights):
        with pytest.raises(ValueError, match="positive norm"):
            rival(np.diag([1.0, 0.0]))
