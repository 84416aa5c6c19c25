"""The rebalanced policy-gradient loss: tensors in, scalars out."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class RebalancedLoss(NamedTuple):
    """Scalars; the first two carry a graph."""

    loss: Tensor
    """Reward part, to be minimised."""
    penalty: Tensor
    """KL to the reference, not yet multiplied by its coefficient."""
    clip_fraction: Tensor
    """Share of weighted tokens (or of stages) where the clip acts; detached."""


def k3_divergence(
    log_prob: Float[Tensor, "*batch"], reference: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Per-token estimate of KL(new || reference): ``exp(d) - d - 1`` with d = reference - new.

    Unbiased for samples of the new policy, never negative.

    References:
        Schulman 2020, Approximating KL divergence (the "k3" estimator).
    """
    gap = reference - log_prob
    return torch.exp(gap) - gap - 1


def _clipped(ratio: Tensor, advantage: Tensor, clip: tuple[float, float]) -> tuple[Tensor, Tensor]:
    low, high = clip
    plain, bounded = ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage
    return torch.minimum(plain, bounded), (bounded < plain).detach()


def rebalanced_kl(
    log_prob: Float[Tensor, "batch tokens"],
    reference_log_prob: Float[Tensor, "batch tokens"],
    weights: Float[Tensor, "batch tokens"],
) -> Float[Tensor, ""]:
    """Weighted per-token KL to the reference over the fixed N, the mean over the pairs.

    Args:
        log_prob: Of the rollout's tokens, new policy.
        reference_log_prob: Of the base model; no graph.
        weights: a of each pair's stage; 0 on visible tokens. No graph.
    """
    used = weights > 0
    # masked before exp: a hidden token's infinity would come back as NaN in the gradient
    seen = torch.where(used, log_prob, 0.0)
    spread = k3_divergence(seen, torch.where(used, reference_log_prob.detach(), 0.0))
    return (weights * spread).sum(-1).mean() / weights.shape[1]


def rebalanced_loss(
    log_prob: Float[Tensor, "batch tokens"],
    old_log_prob: Float[Tensor, "batch tokens"],
    advantage: Float[Tensor, " batch"],
    weights: Float[Tensor, "batch tokens"],
    *,
    clip: tuple[float, float] = (0.2, 0.2),
    ratio: Literal["token", "sequence"] = "token",
    reference_log_prob: Float[Tensor, "batch tokens"] | None = None,
) -> RebalancedLoss:
    """Clipped policy-gradient loss of B (sample, stage) pairs, weighted token by token.

    ``loss = -sum_k a_k min(r_k A, clip(r_k) A) / N``, the mean over the pairs. The weights
    act after the minimum and on the KL too, and the divisor is the fixed N: dividing by the
    number of masked tokens would put the ELBO's 1/t back in.

    Args:
        log_prob: Of the rollout's tokens under the stage's masks, new policy.
        old_log_prob: The same of the policy that drew them; no graph.
        advantage: Per pair, higher is better.
        weights: a of the pair's stage; 0 on visible tokens. No graph.
        clip: How far a ratio may fall below and rise above 1.
        ratio: Per token; or one a stage, ``exp(sum_k a_k (new - old) / N)``, in which the
            weights are inside the exponent.
        reference_log_prob: Of the base model; None leaves the penalty at 0.

    Raises:
        ValueError: Shapes differ (nothing is broadcast: a stage axis that slips in here
            would weigh every stage by all others' masks), or the clip is negative.
    """
    shape = log_prob.shape
    others = [old_log_prob, weights]
    others += [] if reference_log_prob is None else [reference_log_prob]
    if log_prob.ndim != 2 or any(o.shape != shape for o in others):
        got = [tuple(o.shape) for o in (log_prob, *others)]
        raise ValueError(f"log-probabilities and weights must be (batch, tokens) alike, got {got}")
    if advantage.shape != shape[:1]:
        raise ValueError(f"advantage must be ({shape[0]},), got {tuple(advantage.shape)}")
    if min(clip) < 0:
        raise ValueError(f"clip must not be negative, got {clip}")
    tokens = shape[1]
    used = weights > 0
    gap = torch.where(used, log_prob - old_log_prob.detach(), 0.0)
    if ratio == "sequence":
        gain, acted = _clipped(torch.exp((weights * gap).sum(-1) / tokens), advantage, clip)
        loss, fraction = -gain.mean(), acted.float().mean()
    else:
        gain, acted = _clipped(torch.exp(gap), advantage[:, None], clip)
        loss = -(weights * gain).sum(-1).mean() / tokens
        fraction = (acted & used).sum() / used.sum().clamp_min(1)
    penalty = torch.zeros((), dtype=log_prob.dtype, device=log_prob.device)
    if reference_log_prob is not None:
        penalty = rebalanced_kl(log_prob, reference_log_prob, weights)
    return RebalancedLoss(loss, penalty, fraction)
