"""Pins 1-3 of the method, its invariances, and every degenerate case."""

import logging
from typing import Any

import numpy as np
import pytest

from recast_train.credit import gains, solve_weights, static_weights
from recast_train.credit.margins import _continuation, project, sinkhorn
from recast_train.credit.solver import log_kernel

LN2 = np.log(2.0)
TWO = np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])


def random_gains(seed: int, rewards: int = 4, steps: int = 25) -> np.ndarray:
    return np.random.default_rng(seed).gamma(0.7, size=(rewards, steps))


def test_pin_1_has_a_rational_solution() -> None:
    # exp(ghat) is [[2,1,1/2],[1/2,1,2]] e; columns of W are 1/3, and by symmetry of the
    # rows and columns u = 0: W = kernel / column sum / 3 = [[4/5,1/2,1/5],[1/5,1/2,4/5]] / 3
    g = [[1 + LN2, 1, 1 - LN2], [1 - LN2, 1, 1 + LN2]]
    want = np.array([[4, 2.5, 1], [1, 2.5, 4]]) / 15
    np.testing.assert_allclose(solve_weights(g, [1, 1]), want, atol=1e-13)


def test_pin_2() -> None:
    want = [
        [0.294670620450, 0.232187548079, 0.073141831471],
        [0.038662712883, 0.101145785254, 0.260191501862],
    ]
    np.testing.assert_allclose(solve_weights(TWO, [0.6, 0.4]), want, atol=1e-12)
    floored = [
        [0.271002965338, 0.224140661059, 0.104856373603],
        [0.062330367996, 0.109192672274, 0.228476959730],
    ]
    np.testing.assert_allclose(solve_weights(TWO, [0.6, 0.4], floor=0.25), floored, atol=1e-12)
    ipf = [
        [0.302040975587, 0.235669177639, 0.062289846774],
        [0.031292357746, 0.097664155695, 0.271043486560],
    ]
    got = project(np.log(TWO), np.array([0.6, 0.4]), np.full(3, 1 / 3)).weights
    np.testing.assert_allclose(got, ipf, atol=1e-12)


def test_pin_3_from_curves_to_w() -> None:
    g = gains([[0, 1.6, 1.8], [0, 0.2, 2.0]])
    # three points are two steps; the pin's grid prepends nothing: D_0 = 0 is the first point
    np.testing.assert_allclose(g, [[1.6, 0.2], [0.2, 1.8]])
    g = gains([[0, 0, 1.6, 1.8], [0, 0, 0.2, 2.0]])
    np.testing.assert_allclose(g, [[0, 1.6, 0.2], [0, 0.2, 1.8]], atol=1e-15)
    want = [
        [0.259435563775, 0.324659721960, 0.082571380931],
        [0.073897769558, 0.008673611373, 0.250761952402],
    ]
    np.testing.assert_allclose(solve_weights(g, [2, 1]), want, atol=1e-12)


def test_two_rewards_are_a_sigmoid() -> None:
    # K = 2: W_1t = sigmoid(L_1t - L_2t + mu) / T with mu = .530982547506 for pin 2
    kernel = log_kernel(TWO)
    want = 1 / (1 + np.exp(-(kernel[0] - kernel[1] + 0.530982547506))) / 3
    np.testing.assert_allclose(solve_weights(TWO, [0.6, 0.4])[0], want, atol=1e-12)


def test_row_and_column_offsets_change_nothing() -> None:
    rng = np.random.default_rng(1)
    kernel, rows, columns = (
        rng.standard_normal((4, 25)),
        np.array([2, 1, 1, 1]) / 5,
        np.full(25, 0.04),
    )
    moved = kernel + rng.standard_normal((4, 1)) + rng.standard_normal((1, 25))
    a, b = (project(z, rows, columns).weights for z in (kernel, moved))
    np.testing.assert_allclose(a, b, atol=1e-12)


def test_the_unit_of_a_gain_changes_nothing() -> None:
    g = random_gains(2)
    scaled = g * np.array([[1e-200], [1.0], [7.0], [1e200]])
    np.testing.assert_allclose(
        solve_weights(scaled, [2, 1, 1, 1]), solve_weights(g, [2, 1, 1, 1]), atol=1e-12
    )


def test_identical_curves_give_static_weights() -> None:
    g = np.tile(random_gains(3, 1), (4, 1))
    np.testing.assert_allclose(
        solve_weights(g, [2, 1, 1, 1]), static_weights([2, 1, 1, 1], 25), atol=1e-13
    )


def test_order_of_rewards_and_steps_is_kept() -> None:
    g, budgets = random_gains(4), np.array([0.4, 0.3, 0.2, 0.1])
    w = solve_weights(g, budgets)
    rows, steps = [2, 0, 3, 1], np.random.default_rng(0).permutation(25)
    np.testing.assert_allclose(solve_weights(g[rows], budgets[rows]), w[rows], atol=1e-12)
    np.testing.assert_allclose(solve_weights(g[:, steps], budgets), w[:, steps], atol=1e-12)


def test_temperature_between_the_linear_programme_and_static() -> None:
    cold = solve_weights(TWO, [0.6, 0.4], temperature=0.02)
    np.testing.assert_allclose(cold, [[1 / 3, 4 / 15, 0], [0, 1 / 15, 1 / 3]], atol=1e-6)
    hot = solve_weights(TWO, [0.6, 0.4], temperature=1e6)
    np.testing.assert_allclose(hot, static_weights([0.6, 0.4], 3), atol=1e-5)


def test_a_temperature_per_reward() -> None:
    g = random_gains(5)
    one = solve_weights(g, np.ones(4), temperature=2.0)
    np.testing.assert_array_equal(solve_weights(g, np.ones(4), temperature=[2.0] * 4), one)
    # a reward so hot that it is flat equals a reward of flat gains
    flat = np.vstack([np.ones(25), g[1:]])
    hot = solve_weights(g, np.ones(4), temperature=[1e12, 1, 1, 1])
    np.testing.assert_allclose(hot, solve_weights(flat, np.ones(4)), atol=1e-10)


def test_column_mass_is_kept_and_a_masked_step_gets_nothing() -> None:
    mass = np.array([0.0, 0.5, 0.3, 0.2])
    w = solve_weights(random_gains(6, 3, 4), [1, 2, 3], column_mass=mass, floor=0.1)
    np.testing.assert_allclose(w.sum(0), mass, atol=1e-15)
    np.testing.assert_allclose(w.sum(1), np.array([1, 2, 3]) / 6, atol=1e-12)
    assert (w[:, 0] == 0).all()
    # a subset of the steps is the problem on those columns alone
    g = random_gains(7)
    steps = [3, 9, 11, 20]
    mass = np.zeros(25)
    mass[steps] = 0.25
    want = project(log_kernel(g)[:, steps], np.full(4, 0.25), np.full(4, 0.25)).weights
    got = solve_weights(g, np.ones(4), column_mass=mass)[:, steps]
    np.testing.assert_allclose(got, want, atol=1e-12)


def test_floor_is_linear_between_credit_and_static() -> None:
    g, budgets = random_gains(8), np.array([2, 1, 1, 1]) / 5
    w, static = solve_weights(g, budgets), static_weights(budgets, 25)
    np.testing.assert_allclose(solve_weights(g, budgets, floor=0.3), 0.3 * static + 0.7 * w)
    np.testing.assert_array_equal(solve_weights(g, budgets, floor=1.0), static)


class TestDegenerate:
    def test_zero_budget_is_left_out(self) -> None:
        g = random_gains(9)
        w = solve_weights(g, [1, 0, 2, 0])
        assert (w[[1, 3]] == 0).all()
        np.testing.assert_allclose(w[[0, 2]], solve_weights(g[[0, 2]], [1, 2]), atol=1e-13)

    def test_budgets_are_normalised(self) -> None:
        np.testing.assert_allclose(solve_weights(TWO, [6, 4]), solve_weights(TWO, [0.6, 0.4]))

    def test_one_reward_is_uniform(self) -> None:
        np.testing.assert_allclose(solve_weights(random_gains(1, 1), [3]), np.full((1, 25), 0.04))
        np.testing.assert_allclose(
            solve_weights([[5.0, 1.0]], [1], column_mass=[1, 3]), [[0.25, 0.75]]
        )

    def test_one_step_is_the_budgets(self) -> None:
        np.testing.assert_allclose(
            solve_weights(random_gains(1, 4, 1), [2, 1, 1, 1])[:, 0], [0.4, 0.2, 0.2, 0.2]
        )
        assert solve_weights([[0.0]], [1]).tolist() == [[1.0]]

    def test_all_flat_is_static_exactly(self) -> None:
        for value in (0.0, 0.3):
            w = solve_weights(np.full((4, 25), value), [2, 1, 1, 1])
            np.testing.assert_array_equal(w, static_weights([2, 1, 1, 1], 25))

    @pytest.mark.parametrize("row", [np.zeros(25), np.full(25, np.nan), np.r_[np.inf, np.ones(24)]])
    def test_a_row_without_gains_counts_as_flat_and_is_said(
        self, row: np.ndarray, caplog: pytest.LogCaptureFixture
    ) -> None:
        g = random_gains(10)
        g[2] = row
        with caplog.at_level(logging.WARNING):
            w = solve_weights(g, np.ones(4))
        assert "[2]" in caplog.text
        g[2] = 1.0
        np.testing.assert_allclose(w, solve_weights(g, np.ones(4)), atol=1e-13)

    def test_a_flat_row_among_others_absorbs_what_they_leave(self) -> None:
        g = np.vstack([np.zeros(25), np.r_[5.0, np.ones(24)], np.r_[np.ones(24), 5.0]])
        multiplier = 75 * solve_weights(g, [1, 1, 1])[0]
        assert (multiplier.min().round(3), multiplier.max().round(3)) == (0.100, 1.078)

    @pytest.mark.parametrize("steps", [2, 25, 1000])
    def test_spikes_up_to_t(self, steps: int) -> None:
        g = np.zeros((8, steps))
        g[np.arange(8), np.arange(8) * steps // 8] = 1.0
        budgets = 10.0 ** -np.arange(8)
        for temperature in (1.0, 0.1):
            w = solve_weights(g, budgets, temperature=temperature)
            np.testing.assert_allclose(w.sum(1), budgets / budgets.sum(), atol=1e-10)
            np.testing.assert_allclose(w.sum(0), 1 / steps, atol=1e-14)

    def test_all_spikes_in_one_column(self) -> None:
        g = np.zeros((8, 1000))
        g[:, 400] = 1.0
        w = solve_weights(g, 10.0 ** -np.arange(8.0))
        np.testing.assert_allclose(w, static_weights(10.0 ** -np.arange(8.0), 1000), atol=1e-12)

    def test_cap_bounds_a_spike(self) -> None:
        g = np.zeros((2, 100))
        g[0, 3] = g[1, 70] = 1.0
        assert log_kernel(g, cap=5.0).max() == 5.0
        multiplier = 200 * solve_weights(g, [1, 1], cap=5.0)
        assert multiplier[0, 3] / multiplier[0, 4] < np.exp(5.0)
        with pytest.raises(ValueError, match="cap"):
            solve_weights(g, [1, 1], cap=0.0)

    @pytest.mark.parametrize(
        ("change", "word"),
        [
            ({"budgets": [1.0, -1.0]}, "budgets"),
            ({"budgets": [1.0, np.nan]}, "budgets"),
            ({"budgets": [0.0, 0.0]}, "budgets"),
            ({"budgets": [1.0]}, "budgets"),
            ({"gains": [[1.0, -0.5], [0.0, 1.0]]}, "gains"),
            ({"gains": [1.0, 2.0]}, "gains"),
            ({"temperature": 0.0}, "temperature"),
            ({"temperature": 1e-320}, "temperature"),
            ({"temperature": 1e-308}, "temperature"),
            ({"temperature": [1.0, 2.0, 3.0]}, "temperature"),
            ({"floor": 1.5}, "floor"),
            ({"column_mass": [1.0]}, "column_mass"),
            ({"column_mass": [1.0, -1.0, 0.0]}, "column_mass"),
        ],
    )
    def test_malformed_input_names_the_law(self, change: dict[str, Any], word: str) -> None:
        given = {"gains": TWO, "budgets": [0.6, 0.4], **change}
        with pytest.raises(ValueError, match=word):
            solve_weights(given.pop("gains"), given.pop("budgets"), **given)

    def test_an_infinite_kernel_has_no_solution(self) -> None:
        with pytest.raises(ValueError, match="finite"):
            project([[0.0, -np.inf], [0.0, 0.0]], [0.5, 0.5], [0.5, 0.5])


def test_the_fallbacks_agree_with_newton() -> None:
    kernel, rows, columns = (
        log_kernel(random_gains(11)),
        np.array([4, 3, 2, 1]) / 10,
        np.full(25, 0.04),
    )
    want = project(kernel, rows, columns)
    assert want.method == "newton"
    assert want.iterations <= 8
    swept = sinkhorn(kernel, rows, columns)
    np.testing.assert_allclose(swept.weights, want.weights, atol=1e-11)
    np.testing.assert_allclose(swept.weights.sum(0), columns, atol=1e-15)
    np.testing.assert_allclose(
        _continuation(kernel, rows, columns, 0).weights, want.weights, atol=1e-11
    )


def test_a_warm_start_saves_steps_and_changes_nothing() -> None:
    kernel, rows, columns = (
        log_kernel(random_gains(12)),
        np.array([4, 3, 2, 1]) / 10,
        np.full(25, 0.04),
    )
    cold = project(kernel, rows, columns)
    warm = project(kernel * 1.01, rows, columns, start=cold.potentials)
    assert warm.iterations < cold.iterations
    np.testing.assert_allclose(
        warm.weights, project(kernel * 1.01, rows, columns).weights, atol=1e-12
    )


def test_static_weights() -> None:
    w = static_weights([2, 1, 1], 5)
    assert w.shape == (3, 5)
    np.testing.assert_allclose(w.sum(1), [0.5, 0.25, 0.25])
    budgets = np.array([2, 1, 1, 1]) / 5
    assert (static_weights(budgets, 25) == (budgets / 25)[:, None]).all()
    for steps in (0, 2.5):
        with pytest.raises(ValueError, match="steps"):
            static_weights([1, 1], steps)  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [0, 1.5, np.inf, np.nan])
def test_a_number_of_steps_is_whole(steps: float) -> None:
    with pytest.raises(ValueError, match="steps must be a whole number"):
        static_weights([1.0], steps)  # type: ignore[arg-type]
