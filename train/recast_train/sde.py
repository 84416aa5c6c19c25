"""One denoising step as a Gaussian: exact mean, standard deviation and log-density.

Rectified flow, ``x_t = (1-t) x_0 + t noise``, ``v = noise - x_0``; samplers run t from 1 to 0.
All functions compute in float32 or wider; ``sigma`` is t at the step's source, ``sigma_next``
at its end. A noise level of 0 makes every step deterministic.
"""

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Step(NamedTuple):
    """The density of the next state."""

    mean: Float[Tensor, " batch *sample"]
    std: Float[Tensor, " batch"]
    """Of every latent dimension; 0 for a deterministic step."""


def euler_step(
    x_t: Float[Tensor, " batch *sample"],
    velocity: Float[Tensor, " batch *sample"],
    sigma: Float[Tensor, " batch"],
    sigma_next: Float[Tensor, " batch"],
) -> Float[Tensor, " batch *sample"]:
    """The deterministic first-order step, ``x + (t_next - t) v``."""
    x_t, velocity, sigma, sigma_next = _wide(x_t, velocity, sigma, sigma_next)
    return x_t + _over(sigma_next - sigma, x_t) * velocity


def sde_step(
    x_t: Float[Tensor, " batch *sample"],
    velocity: Float[Tensor, " batch *sample"],
    sigma: Float[Tensor, " batch"],
    sigma_next: Float[Tensor, " batch"],
    *,
    noise_level: float,
    sigma_max: float,
) -> Step:
    """Flow-GRPO's stochastic step: the probability flow's marginals, with noise to explore.

    ``dx = [v + s^2/(2t) (x + (1-t) v)] dt + s dw`` with ``s = a sqrt(t / (1-t))``, by
    Euler-Maruyama. At noise level 0 it is :func:`euler_step`.

    Args:
        x_t: States at ``sigma``.
        velocity: The policy's, at the same.
        sigma: In (0, 1].
        sigma_next: In [0, sigma).
        noise_level: a; the authors use 0.7, and sqrt(2) would be the exact time reversal.
        sigma_max: Stands in for t = 1 in ``1 - t`` alone, which would divide by zero: the
            sampler's second noise level, below 1.

    Raises:
        ValueError: A noise level is negative or ``sigma_max`` is not in (0, 1).

    References:
        Liu et al. 2025, Flow-GRPO, arXiv:2505.05470, Eq. 8-9 and the released sampler.
    """
    _check_level(noise_level)
    if not 0.0 < sigma_max < 1.0:
        raise ValueError(f"sigma_max must be in (0, 1), got {sigma_max}")
    x_t, velocity, sigma, sigma_next = _wide(x_t, velocity, sigma, sigma_next)
    diffusion = sde_diffusion(sigma, noise_level=noise_level, sigma_max=sigma_max)
    dt = sigma_next - sigma
    bend = diffusion.square() * dt / (2.0 * sigma)
    mean = x_t * (1.0 + _over(bend, x_t)) + velocity * _over(dt + bend * (1.0 - sigma), x_t)
    return Step(mean, diffusion * (-dt).sqrt())


def sde_diffusion(
    sigma: Float[Tensor, " *step"], *, noise_level: float, sigma_max: float
) -> Float[Tensor, " *step"]:
    """Flow-GRPO's diffusion coefficient ``a sqrt(t / (1-t))``, see :func:`sde_step`."""
    room = 1.0 - torch.where(sigma >= 1.0, torch.full_like(sigma, sigma_max), sigma)
    return noise_level * (sigma / room).sqrt()


def cps_step(
    x_t: Float[Tensor, " batch *sample"],
    velocity: Float[Tensor, " batch *sample"],
    sigma: Float[Tensor, " batch"],
    sigma_next: Float[Tensor, " batch"],
    *,
    noise_level: float,
) -> Step:
    """Coefficients-preserving sampling: fresh noise replaces old, the total stays t_next.

    ``std = t_next sin(pi a / 2)``, mean ``(1-t_next) x_0 + sqrt(t_next^2 - std^2) noise`` with
    both predicted at x_t. At noise level 0 it is DDIM, which for this path is Euler.

    Args:
        x_t: States at ``sigma``.
        velocity: The policy's, at the same.
        sigma: In (0, 1].
        sigma_next: In [0, sigma).
        noise_level: a in [0, 1]; 1 keeps nothing of the old noise.

    Raises:
        ValueError: The noise level is not in [0, 1].

    References:
        Wang and Yu 2025, Coefficients-Preserving Sampling, arXiv:2509.05952.
    """
    _check_level(noise_level)
    if noise_level > 1.0:
        raise ValueError(f"CPS needs a noise level in [0, 1], got {noise_level}")
    x_t, velocity, sigma, sigma_next = _wide(x_t, velocity, sigma, sigma_next)
    std = sigma_next * math.sin(math.pi * noise_level / 2.0)
    return _interpolate(x_t, velocity, sigma, sigma_next, std)


def ancestral_step(
    x_t: Float[Tensor, " batch *sample"],
    velocity: Float[Tensor, " batch *sample"],
    sigma: Float[Tensor, " batch"],
    sigma_next: Float[Tensor, " batch"],
) -> Step:
    """Reverse the forward process itself: the posterior of x_next given x_t and the x_0 estimate.

    Its variance is ``t_next^2 (1 - (a t_next / t)^2)``, ``a = (1-t) / (1-t_next)``: DDIM with
    eta = 1. As steps get finer it is the exact time reversal of the forward process, also from
    t = 1; Flow-GRPO's step is that only at a noise level of sqrt(2).

    Args:
        x_t: States at ``sigma``.
        velocity: The policy's, at the same.
        sigma: In (0, 1].
        sigma_next: In [0, sigma).

    References:
        Song et al. 2020, DDIM, arXiv:2010.02502, Eq. 16, written for this path.
    """
    x_t, velocity, sigma, sigma_next = _wide(x_t, velocity, sigma, sigma_next)
    kept = (1.0 - sigma) / (1.0 - sigma_next) * sigma_next / sigma
    std = sigma_next * (1.0 - kept.square()).clamp_min(0.0).sqrt()
    return _interpolate(x_t, velocity, sigma, sigma_next, std)


def mean_log_prob(x_next: Float[Tensor, " batch *sample"], step: Step) -> Float[Tensor, " batch"]:
    """Gaussian log-density of a step, averaged (not summed) over latent dimensions.

    The ratio of two such values is the D-th root of the true likelihood ratio, which keeps it
    near 1 for D in the tens of thousands: hence clip ranges of 1e-4.

    Args:
        x_next: What was drawn.
        step: Its density; the standard deviation is positive.
    """
    std = _over(step.std, step.mean)
    wide = torch.promote_types(x_next.dtype, torch.float32)
    squares = (x_next.to(wide) - step.mean).square() / (2.0 * std.square())
    return -squares.flatten(1).mean(dim=1) - step.std.log() - 0.5 * math.log(2.0 * math.pi)


def unscaled_mean_log_prob(
    x_next: Float[Tensor, " batch *sample"], step: Step
) -> Float[Tensor, " batch"]:
    """``-mean (x_next - mean)^2``: what CPS training uses, without 1/(2 std^2) and constants.

    Proportional to :func:`mean_log_prob` for one step; across steps it weighs by variance, and
    it is finite where the standard deviation is 0.

    Args:
        x_next: What was drawn.
        step: Its density.
    """
    wide = torch.promote_types(x_next.dtype, torch.float32)
    return -(x_next.to(wide) - step.mean).square().flatten(1).mean(dim=1)


def gaussian_kl(
    mean: Float[Tensor, " batch *sample"],
    reference_mean: Float[Tensor, " batch *sample"],
    std: Float[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """KL between two steps of one variance, averaged over latent dimensions.

    ``mean (mu - mu_ref)^2 / (2 std^2)`` with ``std^2 = s^2 |dt|``. Flow-GRPO's released code
    divides by ``2 s^2`` alone and leaves |dt| out: there the same weight is about 1/|dt| (10 at
    10 steps) weaker. TempFlow-GRPO's has it in.

    Args:
        mean: The policy's step mean; keeps its graph.
        reference_mean: The reference's.
        std: Of the step, ``s sqrt|dt|``; positive.
    """
    squares = (mean - reference_mean).square() / (2.0 * _over(std, mean).square())
    return squares.flatten(1).mean(dim=1)


def unscaled_gaussian_kl(
    mean: Float[Tensor, " batch *sample"], reference_mean: Float[Tensor, " batch *sample"]
) -> Float[Tensor, " batch"]:
    """``mean (mu - mu_ref)^2``: the KL on the scale of :func:`unscaled_mean_log_prob`.

    Where the surrogate has no ``1/(2 std^2)``, a penalty that has it would outweigh it without
    bound at the steps that end near 0.
    """
    return (mean - reference_mean).square().flatten(1).mean(dim=1)


def guard_log_ratio(
    x_next: Float[Tensor, " batch *sample"],
    mean: Float[Tensor, " batch *sample"],
    old: Step,
) -> Float[Tensor, " batch"]:
    """GRPO-Guard's normalised log-ratio, centred and on one scale for all steps.

    The raw one is ``mean(eps dmu)/s - mean(dmu^2)/(2 s^2)``: below 0 on average and of a
    variance that depends on the step, so that the upper clip is hardly ever reached. Guard
    takes ``s [raw + mean(dmu^2)/(2 s^2)]``, which is ``mean(eps dmu)``; computed so, it does not
    lose the digits that the difference of two log-densities does (clip ranges are near 1e-6).

    Args:
        x_next: What was drawn.
        mean: Step mean mu of the policy being trained; keeps its graph.
        old: The step under the policy that drew, ``x_next = mu_old + s eps``; positive s.

    References:
        Wang et al. 2025, GRPO-Guard, arXiv:2510.22319.
    """
    noise = (x_next.to(old.mean.dtype) - old.mean) / _over(old.std, old.mean)
    return (noise * (mean - old.mean)).flatten(1).mean(dim=1)


def step_stds(
    sigmas: Float[Tensor, " levels"], *, solver: Literal["sde", "cps"], noise_level: float
) -> Float[Tensor, " steps"]:
    """Standard deviation of the noise that a stochastic sampler adds at each of its steps.

    Args:
        sigmas: (T+1,) noise levels, falling strictly from 1 down to 0; T is 2 or more.
        solver: Whose step, :func:`sde_step` or :func:`cps_step`.
        noise_level: As there, above 0.

    Returns:
        (T,); the last is 0 for ``cps``.

    Raises:
        ValueError: Levels do not fall, or the noise level is not positive.
    """
    if not noise_level > 0.0:
        raise ValueError(f"the noise level must be positive, got {noise_level}")
    levels = sigmas.to(torch.float64)
    if levels.ndim != 1 or len(levels) < 3 or not bool((levels.diff() < 0).all()):
        raise ValueError(f"noise levels fall strictly and number 3 or more, got {sigmas.tolist()}")
    if solver == "cps":
        return (levels[1:] * math.sin(math.pi * noise_level / 2.0)).to(sigmas.dtype)
    diffusion = sde_diffusion(levels[:-1], noise_level=noise_level, sigma_max=float(levels[1]))
    return (diffusion * (-levels.diff()).sqrt()).to(sigmas.dtype)


VISIBLE = 0.02
"""Share of the loudest step's noise that another must add to be worth training."""


def visible(stds: Float[Tensor, " *step"]) -> Bool[Tensor, " *step"]:
    """Steps whose noise shows in the picture: those with ``VISIBLE`` of the loudest one's.

    A sampler's last steps end at nearly no noise and add nearly none (SD3's last level before 0
    is .009), which no reward can tell; yet a step's log-density has a gradient of 1 / std. Trained
    on, it would be the loudest of all, and noise.
    """
    return stds > VISIBLE * stds.max()


def noise_aware_weights(
    stds: Float[Tensor, " steps"], first: int, last: int
) -> Float[Tensor, " steps"]:
    """TempFlow-GRPO's weight of each step: its noise over the mean of the steps explored.

    Args:
        stds: (T,) from :func:`step_stds`.
        first: The first step that a rollout may branch at.
        last: One past the last.

    Returns:
        (T,), with mean 1 over [first, last).

    Raises:
        ValueError: The range is empty, or nothing in it is stochastic.

    References:
        He et al. 2025, TempFlow-GRPO, arXiv:2508.04324, Eq. 8. The 2.25 in their scripts is one
        over this mean for ten steps at shift 3, of which all but the last are explored.
    """
    explored = stds[first:last]
    if not bool((explored > 0).any()):
        raise ValueError(f"no step of [{first}, {last}) is stochastic: {stds.tolist()}")
    return stds / explored.mean()


def _interpolate(
    x_t: Tensor, velocity: Tensor, sigma: Tensor, sigma_next: Tensor, std: Tensor
) -> Step:
    x_0 = x_t - _over(sigma, x_t) * velocity
    noise = x_t + _over(1.0 - sigma, x_t) * velocity
    kept = (sigma_next.square() - std.square()).clamp_min(0.0).sqrt()
    return Step(_over(1.0 - sigma_next, x_t) * x_0 + _over(kept, x_t) * noise, std)


def _over(level: Tensor, like: Tensor) -> Tensor:
    return level.reshape(-1, *(1,) * (like.ndim - 1))


def _wide(*tensors: Tensor) -> tuple[Tensor, ...]:
    wide = torch.promote_types(tensors[0].dtype, torch.float32)
    return tuple(tensor.to(wide) for tensor in tensors)


def _check_level(noise_level: float) -> None:
    if not noise_level >= 0.0:
        raise ValueError(f"a noise level is 0 or more, got {noise_level}")
