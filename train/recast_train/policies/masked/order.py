"""In which order tokens are decoded: pure functions of uniform noise.

``random``, ``halton`` and ``emerge`` do not depend on the policy, so that the sum of the
revealed tokens' log-probabilities is the exact log-probability of a rollout. ``confidence``
does, and its sum is not.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def planned_steps(
    order: str,
    noise: Float[Tensor, "batch tokens"],
    counts: Int[np.ndarray, " steps_plus_1"],
    grid: tuple[int, int],
) -> Int[Tensor, "batch tokens"]:
    """The step that reveals each token, for orders that are known before sampling.

    Args:
        order: ``random`` (uniform permutation), ``halton`` (a spread-out order, shifted
            around the torus by a random offset) or ``emerge`` (each masked token stays
            masked with probability ``counts[i+1] / counts[i]``: counts hold on average).
        noise: Uniform numbers in [0, 1).
        counts: Masked tokens before each step, and 0.
        grid: Height and width; their product is the number of tokens.

    Returns:
        (B, N) int64 in 0..T-1.

    Raises:
        ValueError: The order is not one of these.

    References:
        Besnier et al. 2025, Halton scheduler, arXiv 2503.17076; Ma et al. 2025, emerge
        sampler, arXiv 2510.02880.
    """
    tokens = noise.shape[1]
    if order == "emerge":
        # one uniform number decides all steps: masked at share t iff u < t
        shares = torch.as_tensor(counts[1:-1] / tokens, dtype=noise.dtype, device=noise.device)
        return (noise[:, :, None] < shares).sum(-1)
    if order == "random":
        rank = noise.argsort(-1).argsort(-1)
    elif order == "halton":
        rank = _rolled(halton_rank(*grid), noise, grid)
    else:
        raise ValueError(f"order must be random, halton or emerge, got {order!r}")
    ends = torch.as_tensor(tokens - counts[1:-1], device=noise.device)
    return (rank[:, :, None] >= ends).sum(-1)


def halton_rank(height: int, width: int) -> Int[np.ndarray, " tokens"]:
    """Place of each token of a grid in the order in which a 2-D Halton sequence meets them."""
    tokens = height * width
    rank = np.full(tokens, -1, dtype=np.int64)
    found, index = 0, 1
    while found < tokens:
        row, column = (
            int(_van_der_corput(index, 2) * height),
            int(_van_der_corput(index, 3) * width),
        )
        place = row * width + column
        if rank[place] < 0:
            rank[place], found = found, found + 1
        index += 1
    return rank


def _van_der_corput(index: int, base: int) -> float:
    value, scale = 0.0, 1.0
    while index:
        scale /= base
        index, digit = divmod(index, base)
        value += digit * scale
    return value


def _rolled(rank: np.ndarray, noise: Tensor, grid: tuple[int, int]) -> Tensor:
    height, width = grid
    place = torch.arange(height * width, device=noise.device)
    down = (noise[:, 0] * height).long()[:, None]
    right = (noise[:, 1 % noise.shape[1]] * width).long()[:, None]
    moved = (place // width + down) % height * width + (place % width + right) % width
    return torch.as_tensor(rank, device=noise.device)[moved]


def least_confident(
    probability: Float[Tensor, "batch tokens"],
    masked: Bool[Tensor, "batch tokens"],
    noise: Float[Tensor, "batch tokens"],
    *,
    keep_masked: int,
    temperature: float,
) -> Bool[Tensor, "batch tokens"]:
    """Which tokens stay masked: the ``keep_masked`` least confident of the masked ones.

    Confidence is ``log p + temperature * Gumbel``, as in ``diffusers.AmusedScheduler``.

    Args:
        probability: Of the token that was drawn at each place.
        masked: What is masked now.
        noise: Uniform numbers in [0, 1).
        keep_masked: How many stay masked in each row.
        temperature: Weight of the Gumbel noise.
    """
    tiny = 1e-20
    gumbel = -torch.log((-torch.log(noise.clamp_min(tiny))).clamp_min(tiny))
    confidence = torch.log(probability.clamp_min(tiny)) + temperature * gumbel
    rank = confidence.masked_fill(~masked, torch.inf).argsort(-1).argsort(-1)
    return (rank < keep_masked) & masked


def draw_tokens(
    log_probs: Float[Tensor, "batch tokens vocabulary"], noise: Float[Tensor, "batch tokens"]
) -> Int[Tensor, "batch tokens"]:
    """Invert the cumulative distribution at a uniform number a token."""
    total = log_probs.double().exp().cumsum(-1)
    wanted = noise.double()[..., None] * total[..., -1:]
    return torch.searchsorted(total, wanted, right=True)[..., 0].clamp_max(total.shape[-1] - 1)
