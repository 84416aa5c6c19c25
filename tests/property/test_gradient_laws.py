"""Laws of the min-norm point, of MARBLE's balance and of its rivals, with two oracles."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchjd.aggregation import CAGrad, MGDAWeighting, PCGradWeighting

from recast_train.gradients import (
    balance,
    cagrad_weights,
    cosines,
    mgda_weights,
    min_norm_weights,
    pcgrad_weights,
)


def _gradients(seed: int, count: int, size: int, decades: float = 0.0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(count, size)) + draw.normal(size=size)
    return rows * 10.0 ** draw.uniform(-decades / 2, decades / 2, size=(count, 1))


GRADIENTS = st.builds(
    _gradients,
    st.integers(0, 2**31),
    st.integers(1, 8),
    st.integers(1, 12),
    st.sampled_from([0.0, 2.0, 4.0]),
)


@given(GRADIENTS)
def test_kkt(rows: np.ndarray) -> None:
    gram = rows @ rows.T
    weights = min_norm_weights(gram)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    products, objective = gram @ weights, weights @ gram @ weights
    slack = 1e-9 * gram.diagonal().max()
    # d.g_k >= |d|^2 is first-order optimality; with it the duality gap is max_k (|d|^2 - d.g_k).
    assert products.min() >= objective - slack
    assert abs(weights @ (products - objective)) <= slack


@given(GRADIENTS)
def test_norm_is_the_worst_cosine(rows: np.ndarray) -> None:
    found = balance(rows @ rows.T)
    norms = np.linalg.norm(rows, axis=1)
    direction = found.alpha @ (rows / norms[:, None])
    if (length := np.linalg.norm(direction)) > 1e-5:  # else the gradients cancel: no direction
        assert found.worst_cosine == pytest.approx(length, abs=1e-6)
    np.testing.assert_allclose(
        found.weights @ rows, direction * norms.mean(), atol=1e-9 * norms.max()
    )


@given(GRADIENTS, st.integers(0, 2**31))
def test_balance_ignores_scales_and_order(rows: np.ndarray, seed: int) -> None:
    draw = np.random.default_rng(seed)
    scales, order = 10.0 ** draw.uniform(-3, 3, len(rows)), draw.permutation(len(rows))
    moved = (rows * scales[:, None])[order]
    ours, theirs = balance(rows @ rows.T), balance(moved @ moved.T)
    unit = cosines(rows @ rows.T)
    # The point may be reached by several coefficients; its length may not.
    inverse = np.empty(len(rows))
    inverse[order] = theirs.alpha
    assert inverse @ unit @ inverse == pytest.approx(ours.alpha @ unit @ ours.alpha, abs=1e-9)


@given(GRADIENTS)
def test_marble_conflicts_with_no_gradient(rows: np.ndarray) -> None:
    assert balance(rows @ rows.T).worst_cosine >= -1e-6


@settings(max_examples=25)
@given(st.integers(0, 2**31), st.integers(2, 12), st.integers(2, 12))
def test_cvxpy_oracle(seed: int, count: int, size: int) -> None:
    rows = _gradients(seed, count, size)
    weights = cp.Variable(count, nonneg=True)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(rows.T @ weights)), [cp.sum(weights) == 1])
    best = problem.solve(
        cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11, warm_start=False
    )
    found = min_norm_weights(rows @ rows.T)
    assert found @ rows @ rows.T @ found <= best + 1e-9 * np.square(rows).sum(axis=1).max()


@given(st.integers(0, 2**31), st.integers(2, 8))
def test_enumeration_agrees_with_the_active_set(seed: int, count: int) -> None:
    rows = _gradients(seed, count, 5)
    gram = rows @ rows.T
    # Repeating gradients leaves the hull alone and sends K past the enumeration.
    copies = 8 // count + 1
    many = min_norm_weights(np.tile(gram, (copies, copies)))
    few = min_norm_weights(gram)
    folded = many.reshape(copies, count).sum(axis=0)
    scale = gram.diagonal().max()
    assert folded @ gram @ folded == pytest.approx(few @ gram @ few, abs=1e-9 * scale)


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.integers(2, 6))
def test_rivals_agree_with_torchjd(seed: int, count: int) -> None:
    rows = _gradients(seed, count, 9)
    gram = rows @ rows.T
    tensor = torch.from_numpy(gram)
    frank_wolfe = MGDAWeighting(epsilon=1e-7, max_iters=3000)(tensor).numpy()
    exact = mgda_weights(gram)
    gap = frank_wolfe @ gram @ frank_wolfe - exact @ gram @ exact
    # Frank-Wolfe's rate is 2 L D^2 / iterations; it can be worse than ours, never better.
    assert -1e-9 * gram.max() <= gap <= 4 * gram.diagonal().max() / 3000
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        expected = PCGradWeighting()(tensor).numpy()
    np.testing.assert_allclose(pcgrad_weights(gram, seed), expected, rtol=1e-12)
    # From the matrix of gradients itself, so that the Gram route is what is compared.
    direction = CAGrad(c=0.4, norm_eps=1e-12)(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(
        cagrad_weights(gram, 0.4) @ rows, direction, atol=2e-4 * np.abs(rows).max()
    )


@given(st.integers(0, 2**31), st.integers(1, 6))
def test_pcgrad_without_conflict_is_the_sum(seed: int, count: int) -> None:
    rows = np.abs(_gradients(seed, count, 7)) + 0.1
    np.testing.assert_array_equal(pcgrad_weights(rows @ rows.T, seed), np.ones(count))
