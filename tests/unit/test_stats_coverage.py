"""Intervals that are called 95 % cover in 95 % of clustered data sets.

The data: each prompt has its own win rate, logit-normal around a common mean, and images of a
prompt share it. The truth is the mean of that distribution, by Gauss-Hermite quadrature.
"""

import numpy as np
import pytest
from scipy.special import expit, logit

from recast_eval.stats import davidson, wilson, win_rate

DESIGNS = [(100, 1, 0.0), (100, 4, 1.5), (100, 8, 2.0), (20, 8, 2.0), (10, 4, 1.5)]


def coverage(prompts: int, images: int, spread: float, repeats: int) -> dict[str, float]:
    """Share of data sets whose interval holds the truth, by kind of interval."""
    rng = np.random.default_rng(7)
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    truth = float(expit(0.4 + spread * nodes) @ weights / weights.sum())
    ids = np.repeat(np.arange(prompts), images)
    held = {"effective": 0, "t": 0, "naive": 0}
    for _ in range(repeats):
        chance = expit(0.4 + spread * rng.standard_normal(prompts))
        scores = (rng.random((prompts, images)) < chance[:, None]).astype(float).ravel()
        ours, t = win_rate(scores, ids), win_rate(scores, ids, method="t")
        naive = wilson(scores.mean(), len(scores), 1.96)
        held["effective"] += ours.low <= truth <= ours.high
        held["t"] += t.low <= truth <= t.high
        held["naive"] += naive[0] <= truth <= naive[1]
    return {name: count / repeats for name, count in held.items()}


@pytest.mark.slow
@pytest.mark.parametrize("design", DESIGNS)
def test_ninety_five_percent_covers_93_to_97(design: tuple[int, int, float]) -> None:
    found = coverage(*design, repeats=10_000)
    assert 0.93 <= found["effective"] <= 0.97, found
    assert 0.93 <= found["t"] <= 0.97, found


def test_coverage_in_short() -> None:
    found = coverage(100, 8, 2.0, repeats=600)
    assert 0.93 <= found["effective"] <= 0.97, found
    assert found["naive"] < 0.75, found  # what counting images as independent would do


@pytest.mark.slow
def test_both_orders_as_one_observation_cover_and_as_two_do_not() -> None:
    rng, held, naive = np.random.default_rng(1), 0, 0
    for _ in range(4000):
        better = np.where(rng.random(200) < 0.6, 1.0, 0.0)
        score = np.where(rng.random(200) < 0.13, 0.5, better)  # 13 % flips
        truth = 0.87 * 0.6 + 0.13 * 0.5
        ours = win_rate(score, range(200))
        held += ours.low <= truth <= ours.high
        ends = wilson(score.mean(), 400, 1.96)
        naive += ends[0] <= truth <= ends[1]
    assert 0.93 <= held / 4000 <= 0.97
    assert naive / 4000 < 0.90


@pytest.mark.slow
def test_rating_differences_cover() -> None:
    rng, held, repeats = np.random.default_rng(2), 0, 1500
    truth = np.array([0.0, 0.3, 0.9])
    for _ in range(repeats):
        first, second, outcome, prompts = [], [], [], []
        for prompt in range(80):
            for a, b in ((0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)):
                utilities = np.array([truth[a] + 0.3, truth[b], -0.5 + (truth[a] + truth[b]) / 2])
                noisy = utilities + rng.gumbel(size=3)
                outcome.append((1.0, 0.0, 0.5)[int(noisy.argmax())])
                first.append(a)
                second.append(b)
                prompts.append(prompt)
        found = davidson(first, second, outcome, prompts)
        value = next(d.value for d in found.differences if {d.first, d.second} == {0, 2})
        sign = 1 if found.ratings[2].estimate > found.ratings[0].estimate else -1
        held += value.low <= sign * 0.9 <= value.high
    assert 0.93 <= held / repeats <= 0.97


def few_behind_one(prompts: int, images: int, spread: float, repeats: int) -> tuple[float, float]:
    """Share of data sets whose interval of a difference holds the truth: carried by a few prompts
    of its own, and through a second step by sixty others as well."""
    rng = np.random.default_rng(5)
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    truth = float(logit(expit(0.4 + spread * nodes) @ weights / weights.sum()))
    ids = [*np.repeat(np.arange(prompts), images), *np.repeat(np.arange(60), 2)]
    own = prompts * images
    first, second = ["a"] * own + ["b"] * 120, ["b"] * own + ["c"] * 120
    held = {"b": 0, "c": 0}
    for _ in range(repeats):
        chance = np.repeat(expit(0.4 + spread * rng.standard_normal(prompts)), images)
        won = [*(rng.random(own) < chance), *(rng.random(120) < 0.5)]
        found = davidson(first, second, np.array(won, float), ids, order_effect=False)
        for other in held:
            value = next(d for d in found.differences if {d.first, d.second} == {"a", other})
            sign = 1 if value.first == "a" else -1
            held[other] += value.value.low <= sign * truth <= value.value.high
    return held["b"] / repeats, held["c"] / repeats


FEW_BEHIND = [(2, 8, 0.0), (3, 8, 0.0), (3, 8, 1.5), (5, 8, 1.5), (10, 8, 2.0), (20, 8, 2.0)]


@pytest.mark.slow
@pytest.mark.parametrize("design", FEW_BEHIND)
def test_a_difference_that_few_prompts_carry_covers(design: tuple[int, int, float]) -> None:
    # with two or three prompts nearly always: t has one or two degrees of freedom, and outcomes
    # are whole numbers
    assert min(few_behind_one(*design, repeats=500)) >= 0.93


@pytest.mark.parametrize("design", [(2, 8, 0.0), (5, 8, 1.5)])
def test_a_difference_that_few_prompts_carry_covers_in_short(
    design: tuple[int, int, float],
) -> None:
    assert min(few_behind_one(*design, repeats=60)) >= 0.9  # .68 with all prompts as its own
