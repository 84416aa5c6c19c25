"""Solvers from noise to image, as functions of a velocity: pure, in float32.

Rectified flow: ``x_t = (1-t) x_0 + t noise``, velocity ``noise - x_0``, t runs from 1 to 0.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from recast_train.policies._windows import Window
from recast_train.sde import (
    Step,
    ancestral_step,
    cps_step,
    euler_step,
    mean_log_prob,
    sde_step,
    unscaled_mean_log_prob,
)

Velocity = Callable[[Tensor, Tensor], Tensor]
"""(x_t (N, ...), sigma (N,)) -> velocity (N, ...)."""
Rows = tuple[int, int, int]
"""First, last + 1, total: which rows of a larger draw."""


@dataclass(frozen=True, slots=True)
class Stochastic:
    """Where and how a rollout adds noise."""

    kind: str
    """``sde`` (Flow-GRPO) or ``cps``."""
    noise_level: float
    window: Window
    """Stochastic steps of every row of all processes; Euler outside."""


def draw_noise(
    tail: tuple[int, ...], rows: Rows, generator: Generator, *, copies: int = 1
) -> Tensor:
    """Standard normal rows [first, last) of a draw of ``total``, on the CPU in float32.

    All of it is drawn, so that the images do not depend on how many processes share them.

    Args:
        tail: Shape of one row.
        rows: Which are wanted.
        generator: The source.
        copies: Consecutive rows that are equal: a group that starts from one noise.
    """
    first, last, total = rows
    drawn = torch.randn((-(-total // copies), *tail), generator=generator)
    return drawn.repeat_interleave(copies, dim=0)[first:last] if copies > 1 else drawn[first:last]


def integrate(
    velocity: Velocity,
    noise: Float[Tensor, " sample *latent"],
    sigmas: Float[Tensor, " levels"],
    *,
    solver: str = "euler",
) -> Float[Tensor, " sample *latent"]:
    """Solve the probability-flow ODE from ``sigmas[0]`` to ``sigmas[-1]``, no randomness.

    Args:
        velocity: The policy's.
        noise: Where it starts.
        sigmas: (T+1,) falling noise levels.
        solver: ``euler``, or ``dpm2``: the second-order multistep DPM-Solver++ in the data
            prediction, first-order where its history says nothing (the step from pure noise,
            the one after it, and the step to 0).

    Raises:
        ValueError: The solver is unknown.

    References:
        Lu et al. 2022, DPM-Solver++, arXiv:2211.01095, Algorithm 2, written for this path.
    """
    if solver not in ("euler", "dpm2"):
        raise ValueError(f"solver must be euler or dpm2, got {solver!r}")
    x, before = noise, None
    for j in range(len(sigmas) - 1):
        here, there = sigmas[j], sigmas[j + 1]
        v = velocity(x, here.expand(len(x)))
        if solver == "euler":
            x = x + (there - here) * v
            continue
        x_0 = x - here * v
        estimate = x_0
        if j >= 2 and there > 0 and before is not None:
            ratio = _span(here, there) / _span(sigmas[j - 1], here)
            estimate = x_0 + 0.5 * ratio * (x_0 - before)
        # alpha' (1 - e^-h) is 1 - sigma'/sigma on this path, so that nothing blows up at 1.
        x = there / here * x + (1 - there / here) * estimate
        before = x_0
    return x


def _span(here: Tensor, there: Tensor) -> Tensor:
    """Step in half log-SNR, ``log((1-t)/t)``."""
    return ((1 - there) * here / (there * (1 - here))).log()


def explore(
    velocity: Velocity,
    noise: Float[Tensor, " sample *latent"],
    sigmas: Float[Tensor, " levels"],
    how: Stochastic,
    rows: Rows,
    generator: Generator,
) -> dict[str, Tensor]:
    """Draw with noise in the steps of a window, and keep what a policy gradient needs.

    Returns:
        ``states`` (N, T+1, ...), ``means`` (N, T, ...), ``stds`` (N, T), 0 where the step was
        deterministic, and ``log_probs`` (N, T): mean over latent dimensions (``sde``), or that
        without scale and constants (``cps``); 0 where deterministic.
    """
    x = noise
    states, means, stds, logs = [x], [], [], []
    for j in range(len(sigmas) - 1):
        here, there = sigmas[j].expand(len(x)), sigmas[j + 1].expand(len(x))
        v = velocity(x, here)
        step = Step(euler_step(x, v, here, there), torch.zeros_like(here))
        x = step.mean
        anyone = how.window.at(j)
        inside = anyone[rows[0] : rows[1]].to(x.device)
        # Drawn also where only another process needs it: the streams must stay in step.
        if bool(anyone.any()):
            noisy = _step(states[-1], v, here, there, how, float(sigmas[1]))
            mean = torch.where(_over(inside, x), noisy.mean, step.mean)
            step = Step(mean, torch.where(inside, noisy.std, step.std))
            fresh = draw_noise(tuple(x.shape[1:]), rows, generator).to(x.device)
            x = step.mean + _over(step.std, x) * fresh
        states.append(x)
        means.append(step.mean)
        stds.append(step.std)
        density = unscaled_mean_log_prob if how.kind == "cps" else mean_log_prob
        logs.append(torch.where(step.std > 0, density(x, step), torch.zeros_like(here)))
    named = {"states": states, "means": means, "stds": stds, "log_probs": logs}
    return {name: torch.stack(values, dim=1) for name, values in named.items()}


def _over(level: Tensor, like: Tensor) -> Tensor:
    return level.reshape(-1, *(1,) * (like.ndim - 1))


def _step(
    x: Tensor, v: Tensor, here: Tensor, there: Tensor, how: Stochastic, sigma_max: float
) -> Step:
    if how.kind == "sde":
        return sde_step(x, v, here, there, noise_level=how.noise_level, sigma_max=sigma_max)
    if how.kind == "cps":
        return cps_step(x, v, here, there, noise_level=how.noise_level)
    raise ValueError(f"a stochastic solver is sde or cps, got {how.kind!r}")


def complete(
    velocity: Velocity,
    x_t: Float[Tensor, " sample *latent"],
    sigmas: Float[Tensor, " levels"],
    generator: Generator,
    rows: Rows | None = None,
) -> Float[Tensor, " sample *latent"]:
    """Draw x_0 given x at ``sigmas[0]``: the forward process reversed, step by step."""
    x, whole = x_t, rows or (0, len(x_t), len(x_t))
    for j in range(len(sigmas) - 1):
        here, there = sigmas[j].expand(len(x)), sigmas[j + 1].expand(len(x))
        step = ancestral_step(x, velocity(x, here), here, there)
        fresh = draw_noise(tuple(x.shape[1:]), whole, generator).to(x.device)
        x = step.mean + step.std.reshape(-1, *(1,) * (x.ndim - 1)) * fresh
    return x
