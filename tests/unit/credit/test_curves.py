"""Pin 4, and the laws of curves and gains."""

import numpy as np
import pytest

from recast_train.credit import discriminability, gains
from recast_train.credit.curves import (
    divergence,
    interpolate,
    monotone,
    pool_divergence,
    published_gains,
    relative_gains,
)
from recast_train.credit.measure import measure, pooled_information, raw_curves, reliability, shrink


def test_pin_4() -> None:
    rows = np.tile([1.0, np.exp(0.5), np.e], (7, 1))
    np.testing.assert_allclose(discriminability(rows), [0, 1, 2], atol=1e-14)
    np.testing.assert_allclose(gains([[0, 0, 1, 2]]), [[0, 1, 1]], atol=1e-15)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 1.0, 2.0, 5.0, 50.0])
def test_a_success_rate_has_total_log_one_over_p_at_every_order(alpha: float) -> None:
    # binary reward with success rate 1/8 at sigma 0: rho is 8 with probability 1/8, else 0;
    # D = log(8^alpha / 8) / (alpha - 1) = log 8, and KL = 8 log 8 / 8
    rho = np.array([[8.0]] + [[0.0]] * 7)
    np.testing.assert_allclose(discriminability(rho, alpha), [np.log(8)], rtol=1e-12)


def test_order_one_is_the_limit() -> None:
    rho = np.random.default_rng(0).gamma(2.0, size=(500, 3))
    rho /= rho.mean(axis=0)
    kl = discriminability(rho, 1.0)
    for alpha in (1 - 1e-6, 1 + 1e-6):
        np.testing.assert_allclose(discriminability(rho, alpha), kl, rtol=1e-5)
    orders = [discriminability(rho, a) for a in (0.5, 1.0, 2.0, 4.0)]
    assert (np.diff(orders, axis=0) > 0).all()  # Renyi divergences rise with their order


def test_huge_ratios_do_not_overflow() -> None:
    assert discriminability([[1e200], [1e-200]], 3.0) == pytest.approx(
        (600 * np.log(10) - np.log(2)) / 2
    )


@pytest.mark.parametrize(
    ("ratios", "alpha", "word"),
    [
        ([[-0.1]], 2.0, ">= 0"),
        ([[np.nan]], 2.0, "finite"),
        ([[1.0]], 0.0, "alpha"),
        ([[1.0]], np.inf, "alpha"),
        ([1.0], 2.0, "N, T"),
        ([[1.0, 0.0], [1.0, 0.0]], 2.0, "step"),
    ],
)
def test_malformed_ratios(ratios: list, alpha: float, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        discriminability(ratios, alpha)


def test_a_noisy_curve_is_pooled_and_still_telescopes() -> None:
    curve = np.array([[0.0, 0.3, 0.1, 0.5, 0.4]])
    # PAVA: .3, .1 -> .2, .2; .5, .4 -> .45, .45, clamped to the end .4
    np.testing.assert_allclose(monotone(curve), [[0, 0.2, 0.2, 0.4, 0.4]])
    np.testing.assert_allclose(gains(curve), [[0.2, 0, 0.2, 0]], atol=1e-15)
    assert published_gains(curve).sum() == pytest.approx(0.7)  # clipping inflates .4 to .7


def test_a_curve_that_ends_below_its_start_is_flat() -> None:
    np.testing.assert_array_equal(gains([[0.0, -0.2, 0.3, -0.1]]), [[0, 0, 0]])


def test_missing_points_are_interpolated_and_a_missing_curve_is_flat() -> None:
    got = gains([[0.0, np.nan, 0.4, 1.0], [np.nan] * 4])
    np.testing.assert_allclose(got, [[0.2, 0.2, 0.6], [0, 0, 0]], atol=1e-15)
    with pytest.raises(ValueError, match="finite"):
        gains([[0.0, np.inf]])
    with pytest.raises(ValueError, match="T"):
        gains([[0.0]])


def test_relative_gains_of_nothing_are_flat() -> None:
    np.testing.assert_array_equal(relative_gains([[0.0, 0.0], [1.0, 3.0]]), [[1, 1], [0.5, 1.5]])


class TestDivergence:
    def test_binary_totals_are_log_one_over_p(self) -> None:
        p = np.array([0.5, 0.1, 0.01])
        for kind in ("d2", "kl"):
            got = divergence(np.ones((3, 1)), p, p * (1 - p), kind)  # type: ignore[arg-type]
            np.testing.assert_allclose(got[:, 0], np.log(1 / p), rtol=1e-9)

    def test_r2_is_the_information_and_d2_is_alike_at_small_spread(self) -> None:
        icc = np.array([[0.0, 0.2, 0.7, 1.0]])
        np.testing.assert_array_equal(divergence(icc, [0.85], [0.03**2], "r2"), icc)
        d2 = divergence(icc, [0.85], [0.03**2], "d2")
        np.testing.assert_allclose(d2 / d2[0, -1], icc, atol=1e-3)

    def test_kl_rises_and_starts_at_zero(self) -> None:
        kl = divergence(np.linspace(0, 1, 50)[None], [0.3], [0.1], "kl")[0]
        assert kl[0] == 0
        assert (np.diff(kl) > 0).all()

    def test_a_mean_that_allows_no_ratio(self) -> None:
        with pytest.raises(ValueError, match="mean > 0"):
            divergence([[0.5]], [-0.1], [1.0], "d2")
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            divergence([[0.5]], [2.0], [1.0], "kl")
        with pytest.raises(ValueError, match="gain"):
            divergence([[0.5]], [0.5], [0.1], "d3")  # type: ignore[arg-type]


def test_hard_prompts_own_the_log_of_the_mean() -> None:
    # p = .5 and .01, binary, sigma = 0: totals of the note: 3.932 and 2.649
    p = np.array([0.5, 0.01])
    parts = (p * (1 - p))[:, None]
    got = {k: pool_divergence(parts, p, p * (1 - p), k)[0] for k in ("log_of_mean", "mean_of_logs")}  # type: ignore[arg-type]
    assert got["log_of_mean"] == pytest.approx(np.log(0.5 * 102))
    assert got["mean_of_logs"] == pytest.approx(0.5 * np.log(200))
    robust = pool_divergence(parts, p, p * (1 - p), "ratio")[0]
    assert robust == pytest.approx(np.log(1 + (p * (1 - p)).sum() / (p**2).sum()))
    with pytest.raises(ValueError, match="pooling"):
        pool_divergence(parts, p, p, "mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="means > 0"):
        pool_divergence(parts, 0 * p, p, "ratio")


def test_pooled_prompts_rise_if_each_does() -> None:
    rng = np.random.default_rng(0)
    parts = np.sort(rng.random((6, 9)), axis=1)
    for kind in ("ratio", "log_of_mean", "mean_of_logs"):
        assert (np.diff(pool_divergence(parts, rng.random(6) + 0.1, parts[:, -1], kind)) >= 0).all()  # type: ignore[arg-type]


class TestGrid:
    SIGMAS = np.linspace(1, 0, 11)

    def test_probes_are_met_and_monotone_between(self) -> None:
        values = np.array([[0, 0.1, 0.1, 0.8, 1.0]])
        got = interpolate([0.9, 0.5, 0.2], values, self.SIGMAS)
        np.testing.assert_allclose(got[0, [0, 1, 5, 8, 10]], values[0], atol=1e-15)
        assert (np.diff(got) >= -1e-15).all()

    def test_off_grid_probes_and_a_single_step(self) -> None:
        got = interpolate([0.95], [[0.0, 0.5, 1.0]], self.SIGMAS)
        assert (np.diff(got) >= 0).all()
        np.testing.assert_array_equal(interpolate([0.5], [[0, 0.3, 1.0]], [1.0, 0.0]), [[0, 1]])

    def test_wrong_grids(self) -> None:
        for probes, sigmas in (
            ([0.5, 0.6], self.SIGMAS),
            ([1.0], self.SIGMAS),
            ([0.5], [0.0, 1.0]),
        ):
            with pytest.raises(ValueError, match="fall strictly"):
                interpolate(probes, np.zeros((1, len(probes) + 2)), sigmas)
        with pytest.raises(ValueError, match="values"):
            interpolate([0.5], [[0.0, 1.0]], self.SIGMAS)

    def test_measure_clamps_and_telescopes(self) -> None:
        raw = np.array([[-0.1, 0.4, 1.2], [0.0, 0.0, 0.5]])
        noise = 0.01 * np.random.default_rng(0).standard_normal((50, 2, 3))
        got = measure(raw, raw + noise, [0.9, 0.5, 0.2], self.SIGMAS, mean=[1, 1], variance=[1, 1])
        assert (got.gains >= 0).all()
        np.testing.assert_allclose(got.gains.sum(1), 1.0)
        np.testing.assert_allclose(got.curves[:, 0], 0.0)
        assert (got.reliability > 0.9).all()
        assert got.errors[1, 5] > 0
        np.testing.assert_allclose(pooled_information(raw)[0], [0, 0, 0.4, 1, 1])
        np.testing.assert_allclose(raw_curves(raw, [0.9, 0.5, 0.2], self.SIGMAS)[0, 1], -0.1)

    def test_what_was_not_measured_is_flat_and_not_trusted(self) -> None:
        noise = 0.01 * np.random.default_rng(0).standard_normal((50, 4, 3))
        raw = np.array([[0.1, 0.4, 0.9]] * 4)
        # A file from before has a variance of rounding alone for a constant reward.
        got = measure(
            raw,
            raw + noise,
            [0.9, 0.5, 0.2],
            self.SIGMAS,
            mean=[0.5, 0.0, 0.8, np.nan],
            variance=[0.1, 0.0, 1e-32, np.nan],
            gain="d2",
        )
        assert got.reliability[0] > 0.9
        assert got.reliability[1:].tolist() == [0, 0, 0]
        assert not got.gains[1:].any()
        assert not got.curves[1:].any()

    def test_a_bound_of_nothing_says_nothing(self) -> None:
        # Useless features: a bound of 0, and 1 at sigma 0 by definition, without any noise.
        raw = np.array([[0.0, 0.0, 0.0], [0.0, 0.3, 0.6], [0.01, -0.01, 0.02]])
        noise = np.array([[0.0], [0.02], [0.02]]) * np.random.default_rng(0).normal(size=(50, 3, 3))
        args = (raw, raw + noise, [0.9, 0.5, 0.2], self.SIGMAS)
        one = np.ones(3)
        bound = measure(*args, mean=one, variance=one, bound=True).reliability
        assert bound[1] > 0.9
        assert bound[[0, 2]].tolist() == [0, 0]
        other = measure(*args, mean=one, variance=one, bound=[True, True, False]).reliability
        assert other[[0, 1]].tolist() == bound[[0, 1]].tolist()
        assert other[2] > 0.9  # pairs say that it is decided at the end

    def test_a_mean_that_allows_no_ratio_is_named_once(self) -> None:
        raw = np.array([[0.0, 0.3, 0.6]] * 2)
        with pytest.raises(ValueError, match=r"mean > 0, got -0\.5$"):
            measure(
                raw,
                np.stack([raw] * 50),
                [0.9, 0.5, 0.2],
                self.SIGMAS,
                mean=[1.0, -0.5],
                variance=[1, 1],
                gain="d2",
            )

    def test_noise_is_not_trusted(self) -> None:
        rng = np.random.default_rng(1)
        relative = rng.gamma(1.0, size=(200, 100, 10))
        assert reliability(relative / relative.mean(2, keepdims=True)).mean() < 0.3
        assert reliability(np.ones((5, 1, 10)))[0] == 0

    def test_shrinking_moves_to_flat(self) -> None:
        g = np.array([[1.0, 3.0], [0.0, 2.0]])
        np.testing.assert_allclose(shrink(g, [0.0, 1.0]), [[1, 1], [0, 2]])
        np.testing.assert_allclose(shrink(g, [0.5, 0.5]), [[0.75, 1.25], [0.5, 1.5]])
        with pytest.raises(ValueError, match="trust"):
            shrink(g, [2.0, 0.0])
