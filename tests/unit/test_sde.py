"""Step densities against their closed forms, and the surrogates built on them."""

import math
from itertools import pairwise
from typing import Literal

import pytest
import torch
from torch import Tensor

from recast_train.sde import (
    Step,
    ancestral_step,
    cps_step,
    euler_step,
    gaussian_kl,
    guard_log_ratio,
    mean_log_prob,
    noise_aware_weights,
    sde_step,
    step_stds,
    unscaled_mean_log_prob,
    visible,
)

SIGMAS = torch.tensor([1.0, 0.9, 0.6, 0.25, 0.0])


@pytest.fixture
def states() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x_t = torch.randn(4, 3, 2, 2, generator=generator)
    velocity = torch.randn(4, 3, 2, 2, generator=generator)
    return x_t, velocity, SIGMAS[:-1], SIGMAS[1:]


def test_no_noise_is_euler(states: tuple[Tensor, ...]) -> None:
    euler = euler_step(*states)
    step = sde_step(*states, noise_level=0.0, sigma_max=0.9)
    assert torch.equal(step.mean, euler)
    assert not step.std.any()
    # CPS at 0 is DDIM, which for a straight path is Euler, up to the order of its sums.
    step = cps_step(*states, noise_level=0.0)
    torch.testing.assert_close(step.mean, euler, rtol=1e-5, atol=1e-6)
    assert not step.std.any()


def test_cps_without_noise_is_ddim(states: tuple[Tensor, ...]) -> None:
    x_t, velocity, sigma, sigma_next = states
    t, n = sigma.view(-1, 1, 1, 1), sigma_next.view(-1, 1, 1, 1)
    ddim = (1 - n) * (x_t - t * velocity) + n * (x_t + (1 - t) * velocity)
    step = cps_step(*states, noise_level=0.0)
    torch.testing.assert_close(step.mean, ddim, rtol=0, atol=1e-6)


def test_sde_step_by_hand() -> None:
    # t = 1/2, dt = -1/4, a = 1: s^2 = 1, mean = x (1 - 1/4) - v (1/4 + 1/8), std = 1/2.
    step = sde_step(
        torch.tensor([[2.0]]),
        torch.tensor([[4.0]]),
        torch.tensor([0.5]),
        torch.tensor([0.25]),
        noise_level=1.0,
        sigma_max=0.9,
    )
    torch.testing.assert_close(step, Step(torch.tensor([[0.0]]), torch.tensor([0.5])))


def test_sde_at_pure_noise_uses_the_next_level() -> None:
    # s^2 = a^2 / (1 - 0.9) = 10 a^2, std = a sqrt(10 * 0.1) = a; the drift keeps 1 - t = 0.
    one, zero = torch.ones(1, 1), torch.zeros(1, 1)
    step = sde_step(one, zero, SIGMAS[:1], SIGMAS[1:2], noise_level=0.5, sigma_max=0.9)
    assert step.std.item() == pytest.approx(0.5, rel=1e-6)
    assert step.mean.item() == pytest.approx(1 - 0.25 * 10 * 0.1 / 2, rel=1e-6)


@pytest.mark.parametrize("level", [0.0, 0.3, 1.0])
def test_cps_keeps_the_total_noise(states: tuple[Tensor, ...], level: float) -> None:
    x_t, _, sigma, sigma_next = states
    # x_0 = 0 and noise e: x_t = t e, v = e. Then mean = sqrt(n^2 - std^2) e.
    noise = x_t
    step = cps_step(sigma.view(-1, 1, 1, 1) * noise, noise, sigma, sigma_next, noise_level=level)
    kept = (step.mean / noise).flatten(1).mean(1)
    torch.testing.assert_close(
        kept.square() + step.std.square(), sigma_next.square(), atol=1e-5, rtol=0
    )


def _ancestral_on_a_normal(steps: int) -> tuple[float, float]:
    """Variance at t = 0, and covariance with the start, for x_0 ~ N(0, 1) and its exact v."""
    sigmas = torch.linspace(1, 0, steps + 1, dtype=torch.float64)
    one, variance, covariance = torch.ones(1, 1, dtype=torch.float64), 1.0, 1.0
    for sigma, sigma_next in pairwise(sigmas):
        # E[noise - x_0 | x_t] = x_t (t - (1 - t)) / ((1-t)^2 + t^2)
        slope = (2 * sigma - 1) / ((1 - sigma) ** 2 + sigma**2)
        step = ancestral_step(one, slope * one, sigma.view(1), sigma_next.view(1))
        gain = step.mean.item()
        variance = gain**2 * variance + step.std.item() ** 2
        covariance *= gain
    return variance, covariance


def test_ancestral_step_reverses_the_forward_process() -> None:
    coarse, _ = _ancestral_on_a_normal(200)
    fine, covariance = _ancestral_on_a_normal(400)
    # First order: the error halves with the step.
    assert (1 - coarse) / (1 - fine) == pytest.approx(2.0, rel=0.05)
    assert fine == pytest.approx(1.0, rel=0.02)
    # The forward process ends independent of its start; its reversal must too.
    assert abs(covariance) < 1e-3


def test_ancestral_is_a_cps_step_with_its_own_noise(states: tuple[Tensor, ...]) -> None:
    x_t, velocity, sigma, sigma_next = states
    step = ancestral_step(x_t, velocity, sigma, sigma_next)
    assert step.std[0].item() == pytest.approx(0.9)  # from pure noise nothing is kept
    level = 2 / math.pi * math.asin(float(step.std[1] / sigma_next[1]))
    again = cps_step(x_t, velocity, sigma, sigma_next, noise_level=level)
    torch.testing.assert_close(again.mean[1], step.mean[1], rtol=1e-5, atol=1e-5)


def test_mean_log_prob_is_the_normal_density() -> None:
    generator = torch.Generator().manual_seed(1)
    mean, drawn = torch.randn(2, 3, 5, 5, generator=generator, dtype=torch.float64).unbind()
    std = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)
    normal = torch.distributions.Normal(mean, std.view(3, 1, 1))
    torch.testing.assert_close(
        mean_log_prob(drawn, Step(mean, std)), normal.log_prob(drawn).mean(dim=(1, 2))
    )
    torch.testing.assert_close(
        unscaled_mean_log_prob(drawn, Step(mean, std)), -(drawn - mean).square().mean(dim=(1, 2))
    )


def test_kl_is_that_of_two_normals() -> None:
    std = torch.tensor([0.3, 2.0])
    mean, other = torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.tensor([[0.5, 2.5], [3.0, 1.0]])
    normal = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(
        normal(mean, std.view(2, 1)), normal(other, std.view(2, 1))
    ).mean(dim=1)
    torch.testing.assert_close(gaussian_kl(mean, other, std), expected)


def test_guard_identity() -> None:
    generator = torch.Generator().manual_seed(2)
    old_mean, noise, shift = torch.randn(3, 4, 6, generator=generator, dtype=torch.float64)
    std = torch.tensor([0.1, 0.5, 1.0, 2.0], dtype=torch.float64)
    old, new = Step(old_mean, std), Step(old_mean + shift / 10, std)
    drawn = old.mean + std.view(-1, 1) * noise
    raw = mean_log_prob(drawn, new) - mean_log_prob(drawn, old)
    squares = (new.mean - old.mean).square().mean(dim=1)
    published = std * (raw + squares / (2 * std.square()))
    torch.testing.assert_close(guard_log_ratio(drawn, new.mean, old), published)
    torch.testing.assert_close(published, (noise * shift / 10).mean(dim=1))
    assert (raw != published).all()


@pytest.mark.parametrize("solver", ["sde", "cps"])
def test_step_stds_are_those_of_the_steps(solver: Literal["sde", "cps"]) -> None:
    found = step_stds(SIGMAS, solver=solver, noise_level=0.7)
    zero = torch.zeros(4, 1)
    if solver == "sde":
        step = sde_step(
            zero, zero, SIGMAS[:-1], SIGMAS[1:], noise_level=0.7, sigma_max=float(SIGMAS[1])
        )
    else:
        step = cps_step(zero, zero, SIGMAS[:-1], SIGMAS[1:], noise_level=0.7)
    torch.testing.assert_close(found, step.std)


def test_steps_that_end_near_nothing_are_not_visible() -> None:
    # SD3's levels for five steps at shift 3: the last step but one of cps ends at .009.
    sigmas = torch.tensor([1.0, 0.9004, 0.7511, 0.503, 0.0089, 0.0])
    seen = {s: visible(step_stds(sigmas, solver=s, noise_level=0.7)) for s in ("sde", "cps")}
    assert seen["sde"].tolist() == [True, True, True, True, False]
    assert seen["cps"].tolist() == [True, True, True, False, False]


def test_noise_aware_weights() -> None:
    stds = step_stds(SIGMAS, solver="sde", noise_level=0.7)
    weights = noise_aware_weights(stds, 0, 4)
    assert weights.mean().item() == pytest.approx(1.0)
    # s sqrt|dt| without a: sqrt(10 * .1), sqrt(9 * .3), sqrt(1.5 * .35), sqrt(1/3 * .25)
    raw = torch.tensor([1.0, 2.7, 0.525, 1 / 12]).sqrt()
    torch.testing.assert_close(weights, raw / raw.mean())
    quieter = step_stds(SIGMAS, solver="sde", noise_level=0.1)
    torch.testing.assert_close(weights, noise_aware_weights(quieter, 0, 4))
    torch.testing.assert_close(noise_aware_weights(stds, 1, 3)[1:3].mean(), torch.tensor(1.0))


def test_noise_aware_weights_are_the_constant_of_the_authors() -> None:
    # Ten steps at shift 3, as SD3's scheduler has them; their scripts multiply by 2.25.
    line = torch.linspace(1.0, 0.003 / (3 - 2 * 0.003), 10)
    sigmas = torch.cat([3 * line / (1 + 2 * line), torch.zeros(1)])
    stds = step_stds(sigmas, solver="sde", noise_level=0.7)
    torch.testing.assert_close(noise_aware_weights(stds, 0, 9), 2.25 * stds, rtol=0.01, atol=0)


@pytest.mark.parametrize(
    ("call", "law"),
    [
        (lambda s: sde_step(*s, noise_level=-0.1, sigma_max=0.9), "noise level"),
        (lambda s: sde_step(*s, noise_level=0.7, sigma_max=1.0), "sigma_max"),
        (lambda s: cps_step(*s, noise_level=1.1), r"\[0, 1\]"),
        (lambda s: step_stds(SIGMAS.flip(0), solver="sde", noise_level=0.7), "fall strictly"),
        (lambda s: step_stds(SIGMAS, solver="cps", noise_level=0.0), "positive"),
        (lambda s: noise_aware_weights(torch.ones(4), 2, 2), "no step"),
    ],
)
def test_out_of_range(states: tuple[Tensor, ...], call: object, law: str) -> None:
    with pytest.raises(ValueError, match=law):
        call(states)  # type: ignore[operator]
