"""The clipped surrogate of PPO and GRPO, for denoising steps."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class PolicyGradientLoss(NamedTuple):
    """The loss to step on, and numbers to log, all scalars."""

    loss: Float[Tensor, ""]
    clip_fraction: Float[Tensor, ""]
    """Share of ratios outside [1 - clip, 1 + clip]."""
    ratio_mean: Float[Tensor, ""]
    """Exactly 1 before the first update."""


def policy_gradient_loss(
    log_prob: Float[Tensor, " batch *step"],
    old_log_prob: Float[Tensor, " batch *step"],
    advantage: Float[Tensor, " batch *step"],
    *,
    clip: float,
) -> PolicyGradientLoss:
    """Raise the probability of good samples, but only within a trust region.

    The mean of ``max(-A r, -A clip(r, 1 - clip, 1 + clip))`` with
    ``r = exp(log_prob - old_log_prob)``, taken in float32 or wider.

    Args:
        log_prob: Of what was drawn, under the policy being trained. If it is a mean over
            latent dimensions (as in Flow-GRPO), r is a D-th root and ``clip`` must be small.
        old_log_prob: Under the policy that drew it. Gets no gradient.
        advantage: Higher is better; may lack the trailing axes of ``log_prob``. No gradient.
        clip: Half-width of the trust region for r, above 0.

    Raises:
        ValueError: Shapes disagree, or ``clip`` is not positive.

    References:
        Schulman et al. 2017, PPO, arXiv:1707.06347; Liu et al. 2025, Flow-GRPO,
        arXiv:2505.05470.
    """
    if not clip > 0.0:
        raise ValueError(f"clip must be positive, got {clip}")
    if log_prob.shape != old_log_prob.shape or log_prob.numel() == 0:
        raise ValueError(
            f"log_prob and old_log_prob share one non-empty shape, "
            f"got {tuple(log_prob.shape)} and {tuple(old_log_prob.shape)}"
        )
    if advantage.shape != log_prob.shape[: advantage.ndim]:
        raise ValueError(
            f"advantage {tuple(advantage.shape)} must lead log_prob {tuple(log_prob.shape)}"
        )
    wide = torch.promote_types(log_prob.dtype, torch.float32)
    gain = advantage.detach().to(wide)
    gain = gain.reshape(*gain.shape, *(1,) * (log_prob.ndim - gain.ndim))
    ratio = (log_prob.to(wide) - old_log_prob.detach().to(wide)).exp()
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    loss = torch.maximum(-gain * ratio, -gain * clipped).mean()
    outside = (ratio != clipped).to(wide).mean()
    return PolicyGradientLoss(loss, outside.detach(), ratio.mean().detach())
