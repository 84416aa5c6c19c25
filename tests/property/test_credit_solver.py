"""Laws of W over random gains and budgets, and agreement with another solver."""

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recast_train.credit import gains, solve_weights
from recast_train.credit.curves import published_gains
from recast_train.credit.solver import log_kernel

STEPS = st.one_of(st.integers(1, 40), st.sampled_from([100, 500, 1000]))


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Gains from flat to a single spike (ghat = T), budgets down to 1e-6 of the largest."""
    rewards, steps = draw(st.integers(1, 8)), draw(STEPS)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.sampled_from([0.02, 0.2, 1.0, 20.0]))
    g = rng.gamma(shape, size=(rewards, steps))
    kind = draw(st.sampled_from(["smooth", "spikes", "one column", "some zero"]))
    if kind == "spikes":
        g = np.zeros((rewards, steps))
        g[np.arange(rewards), rng.integers(steps, size=rewards)] = 1.0
    elif kind == "one column":
        g = np.zeros((rewards, steps)) + 1e-9 * g
        g[:, rng.integers(steps)] += 1.0
    elif kind == "some zero":
        g[rng.random(g.shape) < 0.7] = 0.0
    budgets = 10.0 ** rng.uniform(draw(st.sampled_from([-6.0, -2.0, 0.0])), 0.0, size=rewards)
    return g, budgets


@settings(max_examples=300)
@given(problems(), st.sampled_from([0.2, 1.0, 5.0]), st.sampled_from([0.0, 0.1, 0.9]))
def test_margins_hold(
    problem: tuple[np.ndarray, np.ndarray], temperature: float, floor: float
) -> None:
    g, budgets = problem
    w = solve_weights(g, budgets, temperature=temperature, floor=floor)
    share = budgets / budgets.sum()
    assert np.abs(w.sum(1) - share).max() <= 1e-10
    assert np.abs(w.sum(0) - 1 / g.shape[1]).max() <= 1e-10
    assert (w >= floor * share[:, None] / g.shape[1] - 1e-15).all()


@settings(max_examples=100)
@given(problems(), st.integers(0, 2**32 - 1))
def test_any_column_mass_holds(problem: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    g, budgets = problem
    mass = np.random.default_rng(seed).gamma(0.5, size=g.shape[1]) + 1e-12
    w = solve_weights(g, budgets, column_mass=mass)
    assert np.abs(w.sum(1) - budgets / budgets.sum()).max() <= 1e-10
    assert np.abs(w.sum(0) - mass / mass.sum()).max() <= 1e-10


@settings(max_examples=60)
@given(st.integers(2, 8), st.sampled_from([3, 25, 200]), st.integers(0, 2**32 - 1))
def test_agrees_with_pot(rewards: int, steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    g = rng.gamma(2.0, size=(rewards, steps))
    budgets = rng.dirichlet(np.full(rewards, 3.0))
    theirs = ot.bregman.sinkhorn_log(
        budgets, np.full(steps, 1 / steps), -log_kernel(g), 1.0, stopThr=1e-13, numItermax=100_000
    )
    assert np.abs(solve_weights(g, budgets) - theirs).max() <= 1e-8


@settings(max_examples=100)
@given(problems())
def test_w_is_the_optimum(problem: tuple[np.ndarray, np.ndarray]) -> None:
    """First-order condition of the projection: log W - L is a row plus a column constant."""
    g, budgets = problem
    w = solve_weights(g, budgets)
    if w.min() < 1e-250:
        return  # a spike's underflow has no logarithm
    rest = np.log(w) - log_kernel(g)
    rest -= rest.mean(0)
    assert np.ptp(rest, axis=1).max() < 1e-6


@settings(max_examples=200)
@given(st.integers(1, 6), st.integers(1, 60), st.integers(0, 2**32 - 1), st.floats(0, 2))
def test_gains_are_never_negative_and_telescope(
    rewards: int, steps: int, seed: int, noise: float
) -> None:
    rng = np.random.default_rng(seed)
    curves = np.sort(rng.random((rewards, steps + 1)), axis=1)
    curves += noise * rng.standard_normal(curves.shape)
    curves[:, 0] = 0.0
    g = gains(curves)
    assert (g >= 0).all()
    np.testing.assert_allclose(g.sum(1), np.maximum(curves[:, -1], 0.0), atol=1e-12)
    assert (published_gains(curves).sum(1) >= g.sum(1) - 1e-12).all()
    monotone = np.cumsum(np.abs(np.diff(curves)), axis=1)
    again = np.concatenate([np.zeros((rewards, 1)), monotone], axis=1)
    np.testing.assert_allclose(gains(again), np.diff(again), atol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_the_hardest_corner(temperature: float) -> None:
    """T = 1000, spikes of height T, budgets over six decades, all at once."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        g = np.zeros((8, 1000))
        g[np.arange(8), rng.integers(1000, size=8)] = 1.0
        budgets = 10.0 ** rng.uniform(-6, 0, size=8)
        w = solve_weights(g, budgets, temperature=temperature)
        assert np.abs(w.sum(1) - budgets / budgets.sum()).max() <= 1e-10
        assert np.abs(w.sum(0) - 1e-3).max() <= 1e-10
