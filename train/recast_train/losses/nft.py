"""DiffusionNFT's loss as a pure function of tensors."""

from typing import Final, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

_FLOOR: Final = 1e-5


class NFTLoss(NamedTuple):
    """The loss to step on, and numbers to log, all scalars."""

    loss: Float[Tensor, ""]
    positive: Float[Tensor, ""]
    """Mean error of the implicit positive policy, weighted as in the loss; detached."""
    negative: Float[Tensor, ""]


def nft_loss(
    new: Float[Tensor, " batch *sample"],
    old: Float[Tensor, " batch *sample"],
    target: Float[Tensor, " batch *sample"],
    optimality: Float[Tensor, " batch"],
    *,
    beta: float,
    sigma: Float[Tensor, " batch"] | None = None,
) -> NFTLoss:
    """Contrast an implicit positive policy with an implicit negative one.

    ``r ||v+ - v||^2 + (1 - r) ||v- - v||^2`` with ``v+- = old +- beta (new - old)``, mean over
    the batch. With ``sigma`` the errors are those of x_0 = x_t - sigma v, each divided by its
    own mean absolute error without gradient (the paper's adaptive weighting).

    Args:
        new: Velocity of the policy being trained; keeps its graph.
        old: Velocity of the policy that drew the samples. Gets no gradient.
        target: Velocity of the noising path, ``noise - x_0``.
        optimality: Probability r that a sample is good, in [0, 1].
        beta: How far the two implicit policies stand from ``old``, above 0; 1/beta is the
            strength of the guidance that is learnt.
        sigma: Noise levels, in (0, 1], to weigh adaptively; None takes plain velocity errors.

    Returns:
        Scalars, computed in float32 or wider whatever the inputs are.

    Raises:
        ValueError: Shapes differ, ``beta`` is not positive, or an optimality is outside [0, 1].

    References:
        Zheng et al. 2025, DiffusionNFT, arXiv:2509.16117, Eq. 5 and its adaptive weighting.
        The released code floors the mean absolute error at 1e-5 and works in float64.
    """
    _check(new, old, target, optimality, beta, sigma)
    wide = torch.promote_types(new.dtype, torch.float32)
    new, target = new.to(wide), target.detach().to(wide)
    old = old.detach().to(wide)
    step = beta * (new - old)
    positive = _error(old + step - target, sigma)
    negative = _error(old - step - target, sigma)
    good = optimality.detach().to(wide)
    loss = good * positive + (1 - good) * negative
    return NFTLoss(loss.mean(), positive.mean().detach(), negative.mean().detach())


def _error(residual: Tensor, sigma: Tensor | None) -> Tensor:
    """(batch,) mean square; adaptive: sigma^2 mean square over sigma mean absolute."""
    flat = residual.flatten(1)
    if sigma is None:
        return flat.square().mean(dim=1)
    x_0 = sigma.detach().to(flat)[:, None] * flat
    scale = x_0.detach().abs().mean(dim=1).clamp_min(_FLOOR)
    return x_0.square().mean(dim=1) / scale


def _check(
    new: Tensor,
    old: Tensor,
    target: Tensor,
    optimality: Tensor,
    beta: float,
    sigma: Tensor | None,
) -> None:
    if not new.shape == old.shape == target.shape or new.ndim < 2 or new.numel() == 0:
        raise ValueError(
            "new, old and target share one non-empty shape (batch, ...), "
            f"got {tuple(new.shape)}, {tuple(old.shape)}, {tuple(target.shape)}"
        )
    if optimality.shape != new.shape[:1] or (sigma is not None and sigma.shape != new.shape[:1]):
        raise ValueError(f"optimality and sigma are ({new.shape[0]},), one a sample")
    if not beta > 0:
        raise ValueError(f"beta must be positive, got {beta}")
    low, high = float(optimality.min()), float(optimality.max())
    if not (low >= 0 and high <= 1):
        raise ValueError(f"optimality must be in [0, 1], got [{low}, {high}]")
