"""Budgets are spent on the steps that a method trains, whichever these are."""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pytest
import torch

from recast_train.columns import spent_on
from recast_train.methods import METHODS
from recast_train.methods._density import window_density
from recast_train.methods._policy_gradient import WindowConfig
from recast_train.policies._windows import find_window
from recast_train.policies.base import Condition, Rollout
from recast_train.sde import step_stds, visible

STEPS, SAMPLES, EPOCHS = 10, 24, 200
SIGMAS = torch.linspace(1.0, 0.0, STEPS + 1)
SHIFTED = torch.tensor([1, 0.96, 0.913, 0.857, 0.788, 0.7, 0.6, 0.46, 0.27, 0.009, 0])
"""SD3's, shift 3: the last steps add hardly any noise."""
BUDGETS = np.array([0.5, 0.3, 0.2])


def _credit() -> np.ndarray:
    """(3, T) equal columns, rows with the budgets; the first early, the last late."""
    early = np.linspace(1.8, 0.2, STEPS)
    rows = np.array([0.5 * early, np.full(STEPS, 0.3), 0.2 * early[::-1]])
    rows[1] = 1.0 - rows[0] - rows[2]
    weights: np.ndarray = rows / STEPS
    np.testing.assert_allclose(weights.sum(axis=1), BUDGETS)
    return weights


METHOD_CASES = [
    ("nft", {}),
    ("nft", {"timesteps": "first", "timestep_fraction": 0.6}),
    ("awm", {}),
    ("awm", {"stratum_share": 0.5, "train_steps": 2}),
]
WINDOWS: list[dict[str, Any]] = [
    {"kind": "random", "size": 3, "high": 0.5},
    {"kind": "sliding", "size": 4, "every": 25},
    {"kind": "sliding", "size": 2, "every": 100, "stride": 3},
    {"kind": "branch", "size": 1, "high": 0.9, "branches": 6},
    {"kind": "branch", "size": 2, "branches": 4},
]


def _rollouts(window: dict[str, Any], usable: int) -> Iterator[Rollout]:
    generator = torch.Generator().manual_seed(1)
    for epoch in range(EPOCHS):
        found = find_window(window, SAMPLES, STEPS, epoch=epoch, generator=generator)
        stds = torch.stack([found.at(j) & (j < usable) for j in range(STEPS)], dim=1).float()
        yield Rollout(torch.zeros(SAMPLES, 1), Condition({}), {"stds": stds})


def _trained(method: Any, rollouts: Iterator[Rollout]) -> np.ndarray:
    """(T,) what a run's works put on each step, an epoch counting 1."""
    generator, total, epochs = torch.Generator().manual_seed(2), np.zeros(STEPS), 0
    for rollout in rollouts:
        epochs += 1
        for work in method.works(rollout, STEPS, SAMPLES, generator):
            each = np.bincount(work.steps.numpy(), minlength=STEPS) / len(work.rows)
            total += work.weight * each
    return total / epochs


def _holds(density: np.ndarray | None, trained: np.ndarray, slack: float) -> None:
    even = np.full(STEPS, 1 / STEPS)
    np.testing.assert_allclose(even if density is None else density, trained, atol=slack)
    landed = STEPS * spent_on(_credit(), BUDGETS, density) @ trained
    np.testing.assert_allclose(landed / landed.sum(), BUDGETS, atol=2 * slack)
    if density is not None:  # no louder than before
        before = STEPS * _credit() @ density
        after = STEPS * spent_on(_credit(), BUDGETS, density) @ density
        assert after.sum() == pytest.approx(before.sum())


@pytest.mark.parametrize(("name", "switches"), METHOD_CASES)
def test_methods_on_noised_samples(name: str, switches: dict[str, Any]) -> None:
    spec = METHODS.load(name)
    method = spec.build(spec.config(**switches))
    plain = Rollout(torch.zeros(SAMPLES, 1), Condition({}))
    trained = _trained(method, (plain for _ in range(EPOCHS)))
    _holds(method.step_density(SIGMAS, EPOCHS), trained, 4e-3)


@pytest.mark.parametrize("usable", [STEPS, STEPS - 1])
@pytest.mark.parametrize("window", WINDOWS, ids=lambda w: f"{w['kind']}-{w['size']}")
def test_windows(window: dict[str, Any], usable: int) -> None:
    spec = METHODS.load("flow-grpo")
    plan = {"low": 0.0, "high": 1.0, "every": 1, "stride": 1, "branches": 1} | window
    method = spec.build(spec.config(window=type(spec.config().window)(**window)))
    trained = _trained(method, _rollouts(plan, usable))
    slack = 1e-9 if window["kind"] == "sliding" else 3e-2  # places are drawn
    bounds = int(plan["low"] * STEPS), int(plan["high"] * STEPS)
    _holds(window_density(plan, bounds, np.arange(STEPS) < usable, EPOCHS), trained, slack)


def test_all_steps_but_the_last() -> None:
    spec = METHODS.load("flow-grpo")
    method = spec.build(spec.config())
    trained = _trained(method, _rollouts({"kind": "all"}, STEPS))
    every = np.ones(STEPS, bool)
    _holds(window_density({"kind": "all"}, (0, 9), every, EPOCHS), trained, 1e-12)


@pytest.mark.parametrize("window", [{"kind": "all"}, *WINDOWS], ids=lambda w: w["kind"])
@pytest.mark.parametrize("solver", ["sde", "cps"])
def test_the_family_of_flow_grpo(window: dict[str, Any], solver: Literal["sde", "cps"]) -> None:
    spec = METHODS.load("flow-grpo")
    method = spec.build(spec.config(solver=solver, window=WindowConfig(**window)))
    stds = step_stds(SHIFTED, solver=solver, noise_level=method.config.noise_level)
    last = 1 + int(visible(stds).nonzero().max())
    assert last < STEPS or solver == "sde"
    plan, generator = method.rollout_plan["window"], torch.Generator().manual_seed(1)

    def rollouts() -> Iterator[Rollout]:
        for epoch in range(EPOCHS):
            found = find_window(
                plan, SAMPLES, STEPS, epoch=epoch, generator=generator, visible=last
            )
            trace = torch.stack([found.at(j) * stds[j] for j in range(STEPS)], dim=1)
            yield Rollout(torch.zeros(SAMPLES, 1), Condition({}), {"stds": trace})

    slack = 1e-6 if window["kind"] in ("all", "sliding") else 3e-2  # places are drawn
    _holds(method.step_density(SHIFTED, EPOCHS), _trained(method, rollouts()), slack)


def test_without_the_correction_budgets_are_missed() -> None:
    density = np.array([0.2] * 5 + [0.0] * 5)
    landed = STEPS * _credit() @ density
    np.testing.assert_allclose(landed, [0.722, 0.167, 0.111], atol=1e-3)
    spent = STEPS * spent_on(_credit(), BUDGETS, density) @ density
    np.testing.assert_allclose(spent, BUDGETS, rtol=1e-12)


def test_where_budgets_hold_credit_is_left_to_the_bit() -> None:
    density = np.array([1 / 9] * 9 + [0.0])
    static = np.repeat(BUDGETS[:, None] / STEPS, STEPS, axis=1)
    columns = np.outer(BUDGETS, np.arange(1.0, 11.0) / 55)
    for weights in (static, columns, 1.3 * static):
        assert np.array_equal(spent_on(weights, BUDGETS, density), weights)
    assert np.array_equal(spent_on(_credit(), BUDGETS, None), _credit())


def test_what_cannot_be_reached_is_left() -> None:
    weights = np.array([[0.5, 0.0], [0.0, 0.3], [0.0, 0.2]])
    found = spent_on(weights, BUDGETS, [0.0, 1.0])
    np.testing.assert_allclose(found, weights)
    assert np.array_equal(spent_on(weights, BUDGETS, [0.0, 0.0]), weights)
    without = spent_on(_credit() * [[1], [1], [0]], [0.6, 0.4, 0.0], [0.5] + [0.0] * 8 + [0.5])
    assert not without[2].any()
