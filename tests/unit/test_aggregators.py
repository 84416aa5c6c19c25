"""Coefficients over time: refreshes, EMA, guards, state, and the amortised identity."""

import json

import numpy as np
import pytest
import torch

from recast_train.aggregators import AGGREGATORS
from recast_train.gradients import balance, mixture, worst_cosine

BUDGETS = np.array([0.5, 0.3, 0.2])
GRAM = torch.tensor([[4.0, -1.0, 0.5], [-1.0, 1.0, 0.2], [0.5, 0.2, 9.0]], dtype=torch.float64)
ALL = torch.ones(3, dtype=torch.bool)
BALANCERS = ("marble", "mgda", "pcgrad", "cagrad")


def _build(name: str, **switches: object) -> object:
    spec = AGGREGATORS.load(name)
    assert spec.name == name
    config = spec.config(**switches)
    assert not list(config.problems() if hasattr(config, "problems") else ())
    return spec.build(config, BUDGETS)


def test_marble_by_hand() -> None:
    marble = _build("marble", rho=0.7)
    assert [step for step in range(25) if marble.wants_gradients(step)] == [0, 10, 20]
    np.testing.assert_array_equal(marble.coefficients(), BUDGETS)
    found = marble.combine(GRAM, ALL)
    expected = balance(GRAM.numpy())
    np.testing.assert_allclose(found.weights.numpy(), expected.weights)
    assert found.diagnostics["worst_cosine"] == pytest.approx(expected.worst_cosine)
    assert found.diagnostics["worst_cosine_before"] == pytest.approx(
        worst_cosine(GRAM.numpy(), BUDGETS)
    )
    np.testing.assert_allclose(marble.coefficients(), expected.alpha)
    # Orthogonal gradients: alpha = 1/3, so the EMA moves by 0.3 of the way there.
    marble.combine(torch.diag(torch.tensor([1.0, 4.0, 9.0])), ALL)
    np.testing.assert_allclose(marble.coefficients(), 0.7 * expected.alpha + 0.1, atol=1e-12)
    assert marble.scale() == pytest.approx(1.0)


@pytest.mark.parametrize(("start", "past"), [("uniform", np.full(3, 1 / 3)), ("budgets", BUDGETS)])
def test_marble_starts_where_it_is_told(start: str, past: np.ndarray) -> None:
    marble = _build("marble", start=start, rho=0.5, refresh_uses="ema")
    np.testing.assert_allclose(marble.coefficients(), past)
    found = marble.combine(GRAM, ALL)
    expected = (past + balance(GRAM.numpy()).alpha) / 2
    np.testing.assert_allclose(marble.coefficients(), expected)
    # Solved for unit gradients, hence applied to them, at the mean of their norms 2, 1 and 3.
    np.testing.assert_allclose(found.weights.numpy(), expected * 2.0 / [2.0, 1.0, 3.0])


@pytest.mark.parametrize("amortise", ["alpha", "scaled"])
@pytest.mark.parametrize("active", [ALL, torch.tensor([True, False, True])])
def test_the_first_ema_is_the_solution(amortise: str, active: torch.Tensor) -> None:
    # Norms over five decades: weights of unit gradients on raw ones follow the largest alone.
    scale = torch.tensor([1.0, 1e3, 1e5], dtype=torch.float64)
    gram = GRAM * scale[:, None] * scale
    found = {}
    for uses in ("solution", "ema"):
        marble = _build("marble", refresh_uses=uses, amortise=amortise)
        found[uses] = marble.combine(gram, active).weights[active].numpy()
    kept = 1.0 if amortise == "alpha" or active.all() else 1.0 - BUDGETS[1]
    np.testing.assert_allclose(found["ema"], kept * found["solution"], rtol=1e-12)


def test_a_reward_without_signal_keeps_its_share() -> None:
    marble = _build("marble", start="budgets", rho=0.0)
    gram = torch.zeros(3, 3, dtype=torch.float64)
    gram[1:, 1:] = torch.diag(torch.tensor([1.0, 4.0]))
    found = marble.combine(gram, torch.tensor([False, True, True]))
    np.testing.assert_allclose(found.weights.numpy(), [0.0, 0.75, 0.375], atol=1e-12)
    # Budget 0.5 stays with the first; the other half is split equally.
    np.testing.assert_allclose(marble.coefficients(), [0.5, 0.25, 0.25], atol=1e-12)


@pytest.mark.parametrize("name", BALANCERS)
def test_no_nan_when_nothing_has_signal(name: str) -> None:
    balancer = _build(name)
    found = balancer.combine(torch.zeros(3, 3, dtype=torch.float64), ~ALL)
    assert not found.weights.any()
    np.testing.assert_array_equal(balancer.coefficients(), BUDGETS)
    json.dumps(found.diagnostics, allow_nan=False)


@pytest.mark.parametrize("name", BALANCERS)
def test_an_ordinary_step_repeats_the_refresh(name: str) -> None:
    # With the gradients unchanged and no past, scale * sum_k c_k g_k is the solved direction.
    switches = {"amortise": "scaled"} if name == "marble" else {}
    balancer = _build(name, rho=0.0, **switches)
    found = balancer.combine(GRAM, ALL)
    assert balancer.coefficients().sum() == pytest.approx(1.0)
    np.testing.assert_allclose(balancer.scale() * balancer.coefficients(), found.weights.numpy())


@pytest.mark.parametrize("name", BALANCERS)
def test_state_resumes(name: str) -> None:
    whole, first, second = (_build(name) for _ in range(3))
    grams = [GRAM, GRAM.flip(0, 1), GRAM + torch.eye(3)]
    for gram in grams:
        expected = whole.combine(gram, ALL)
    for gram in grams[:2]:
        first.combine(gram, ALL)
    second.load_state(json.loads(json.dumps(first.state(), allow_nan=False)))
    assert torch.equal(second.combine(grams[2], ALL).weights, expected.weights)
    np.testing.assert_array_equal(second.coefficients(), whole.coefficients())


def test_state_of_other_rewards_is_refused() -> None:
    marble = _build("marble")
    with pytest.raises(ValueError, match="2 rewards"):
        marble.load_state({"ema": [0.5, 0.5], "refreshes": 1, "step": 0})


def test_one_reward_is_left_alone_to_the_bit() -> None:
    spec = AGGREGATORS.load("marble")
    marble = spec.build(spec.config(), np.array([1.0]))
    assert not any(marble.wants_gradients(step) for step in range(20))
    for norm in (3.7e-5, 0.1, 123.4):
        found = marble.combine(torch.tensor([[norm**2]], dtype=torch.float64), ALL[:1])
        assert found.weights.item() == 1.0
        assert marble.coefficients()[0] == 1.0
        assert marble.scale() == 1.0


def test_uniform_stage() -> None:
    marble = _build("marble", uniform_from=15)
    marble.wants_gradients(0)
    marble.combine(GRAM, ALL)
    assert not marble.wants_gradients(20)
    np.testing.assert_allclose(marble.coefficients(), np.full(3, 1 / 3))


@pytest.mark.parametrize("switches", [{"start": "uniform"}, {"uniform_from": 0}, {}])
def test_a_reward_without_a_budget_takes_nothing(switches: dict[str, object]) -> None:
    spec = AGGREGATORS.load("marble")
    marble = spec.build(spec.config(**switches), np.array([0.7, 0.3, 0.0]))
    assert marble.wants_gradients(0) == ("uniform_from" not in switches)
    gram = GRAM.clone()
    gram[2] = gram[:, 2] = 0.0
    for _ in range(3):
        marble.combine(gram, torch.tensor([True, True, False]))
    assert marble.coefficients()[2] == 0.0
    assert marble.coefficients().sum() == pytest.approx(1.0)
    alone = spec.build(spec.config(), np.array([1.0, 0.0]))
    assert not alone.wants_gradients(0)
    assert alone.coefficients().tolist() == [1.0, 0.0]


def test_diagnostics_name_every_pair() -> None:
    report = _build("marble").combine(GRAM, ALL).diagnostics
    assert report["gram/0/1"] == -1.0
    assert report["cosine/0/1"] == pytest.approx(-0.5)
    assert report["norm/2"] == 3.0
    assert report["active"] == 3.0
    # (g_0 + g_1 + g_2) . g_1 = 0.2, |sum|^2 = 13.4, |g_1| = 1
    assert report["worst_cosine_of_mean"] == pytest.approx(0.2 / 13.4**0.5)


@pytest.mark.parametrize(("name", "needs"), [("weighted-sum", "raw"), ("zscore-sum", "zscore")])
def test_fixed_mixtures(name: str, needs: str) -> None:
    fixed = _build(name)
    assert fixed.needs_advantages == needs
    assert not any(fixed.wants_gradients(step) for step in range(20))
    np.testing.assert_array_equal(fixed.coefficients(), BUDGETS)
    assert fixed.scale() == 1.0
    fixed.load_state(fixed.state())
    with pytest.raises(ValueError, match="never wants"):
        fixed.combine(GRAM, ALL)


@pytest.mark.parametrize(
    ("switches", "key"),
    [
        ({"refresh_every": 0}, "refresh_every"),
        ({"rho": 1.0}, "rho"),
        ({"uniform_from": -2}, "uniform_from"),
        ({"gram_share": 0.0}, "gram_share"),
    ],
)
def test_switches_out_of_range(switches: dict[str, float], key: str) -> None:
    for name in BALANCERS:
        assert key in next(AGGREGATORS.load(name).config(**switches).problems())
    assert "radius" in next(AGGREGATORS.load("cagrad").config(radius=-1.0).problems())


def test_mixture() -> None:
    shares, scale = mixture([1.0, 3.0])
    np.testing.assert_allclose(shares, [0.25, 0.75])
    assert scale == 4.0
    assert mixture([0.0, 0.0]).scale == 0.0
    for bad in ([1.0, -1.0], [np.nan], [], [-2.0, 1.0]):
        with pytest.raises(ValueError, match="weights"):
            mixture(bad)
