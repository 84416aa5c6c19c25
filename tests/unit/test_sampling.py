"""Solvers against a law whose flow is known in closed form."""

import pytest
import torch
from torch import Tensor

from recast_train.policies.sd3.sampling import complete, draw_noise, integrate

SPREAD = 0.5


def _velocity(x: Tensor, sigma: Tensor) -> Tensor:
    """Of data N(0, SPREAD^2): E[noise - x_0 | x_t] = x (t - (1-t) s^2) / (t^2 + (1-t)^2 s^2)."""
    t = sigma[:, None].to(x)
    return x * (t - (1 - t) * SPREAD**2) / (t**2 + (1 - t) ** 2 * SPREAD**2)


def _grid(steps: int) -> Tensor:
    return torch.linspace(1, 0, steps + 1, dtype=torch.float64)


def _error(solver: str, steps: int) -> float:
    noise = torch.tensor([[1.0], [-0.7]], dtype=torch.float64)
    # The flow of Gaussians is linear: x_0 = s * noise.
    got = integrate(_velocity, noise, _grid(steps), solver=solver)
    return float((got - SPREAD * noise).abs().max())


def test_euler_is_first_and_dpm_second_order() -> None:
    assert _error("euler", 40) / _error("euler", 80) == pytest.approx(2.0, abs=0.2)
    assert _error("dpm2", 40) / _error("dpm2", 80) > 3.0
    assert _error("dpm2", 20) < _error("euler", 20) / 2


def test_dpm_steps_beside_the_ends_are_euler() -> None:
    noise = torch.randn(3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for steps in (1, 2):
        euler = integrate(_velocity, noise, _grid(steps), solver="euler")
        torch.testing.assert_close(integrate(_velocity, noise, _grid(steps), solver="dpm2"), euler)


def test_unknown_solver() -> None:
    with pytest.raises(ValueError, match="euler or dpm2"):
        integrate(_velocity, torch.zeros(1, 1), _grid(2), solver="heun")


def test_completions_have_the_posterior_law() -> None:
    # Given x_t, x_0 is Gaussian with mean a x_t, a = (1-t) s^2 / (t^2 + (1-t)^2 s^2).
    t, count = 0.6, 20_000
    x_t = torch.full((count, 1), 0.8)
    levels = torch.linspace(t, 0, 301)
    got = complete(_velocity, x_t, levels, torch.Generator().manual_seed(3))
    total = t**2 + (1 - t) ** 2 * SPREAD**2
    mean, variance = (1 - t) * SPREAD**2 / total * 0.8, SPREAD**2 * t**2 / total
    assert float(got.mean()) == pytest.approx(mean, abs=0.02)
    assert float(got.var()) == pytest.approx(variance, rel=0.04)


def test_noise_does_not_depend_on_who_shares_it() -> None:
    whole = draw_noise((2,), (0, 6, 6), torch.Generator().manual_seed(5))
    parts = [
        draw_noise((2,), (a, b, 6), torch.Generator().manual_seed(5)) for a, b in ((0, 4), (4, 6))
    ]
    assert torch.equal(torch.cat(parts), whole)
