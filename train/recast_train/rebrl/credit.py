"""Which weight a token gets at a stage, and what that adds up to by token and by stage.

The on-policy gradient of every method here is ``(A / N) sum_i sum_k a_ik dlog pi(o_k | s_i)``
with T stages i (state s_i has the set M_i masked, a share t_i) and N tokens k. Its *token
weight* is ``W_k = sum_i a_ik``, its *stage credit* ``C_i = sum_k a_ik / N``. Arrays are
(..., T, N) float64, a is 0 where a token is not masked.
"""

from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

Token = Literal["none", "inv_freq", "exact"]
Weights = Float[np.ndarray, "*batch steps tokens"]


def _as_masks(masks: ArrayLike, *, nested: bool) -> Bool[np.ndarray, "*batch steps tokens"]:
    array = np.asarray(masks)
    if array.ndim < 2 or 0 in array.shape[-2:]:
        raise ValueError(f"masks must be (steps, tokens) with one of each, got {array.shape}")
    if array.dtype != bool:
        if not np.isin(array, (0, 1)).all():
            raise ValueError(f"masks must be boolean, got {array.dtype}")
        array = array.astype(bool)
    if nested and (array[..., 1:, :] & ~array[..., :-1, :]).any():
        step = int(np.argwhere(array[..., 1:, :] & ~array[..., :-1, :])[0][-2]) + 1
        raise ValueError(
            f"masks must be nested: a token of step {step} is masked that was visible before"
        )
    return array


def credit_weights(
    masks: ArrayLike, *, stage_power: float, token: Token, nested: bool = True
) -> Weights:
    """Weights of the masked-set estimator: ELBO, rebalanced by stage and by token.

    ``a_ik = t_i^p / t_i / F_k`` where token k is masked. Stage power 0 without a token
    factor is the ELBO of UniGRPO and MaskGRPO: each stage counts the same, but a token that
    is decoded late is in more stages. ``inv_freq`` divides by F_k, the number of stages
    where token k is masked, ``exact`` by ``Z_k = sum_i t_i^p / t_i``. Power 1 with
    ``inv_freq``, and ``exact`` with any power, weigh every token by exactly 1.

    Args:
        masks: (..., T, N) bool, generation order (fully masked first), nested.
        stage_power: p of the stage factor t^p, at least 0.
        token: Divisor of each token.
        nested: False for masks that are no rollout's (independent draws).

    Returns:
        (..., T, N) float64. A token that no stage masks, and a stage that masks no token,
        have weight 0.

    Raises:
        ValueError: The masks are not nested or not boolean, or an option is unknown.

    References:
        Zhang et al. 2026, RebRL, CVPR 2026 (stage factors t and t^2, token factor 1/F);
        that 1/F alone is not uniform, and both together are, is ours.
    """
    if token not in get_args(Token):
        raise ValueError(f"token must be one of {', '.join(get_args(Token))}, got {token!r}")
    if not (np.isfinite(stage_power) and stage_power >= 0):
        raise ValueError(f"stage_power must be at least 0, got {stage_power}")
    masked = _as_masks(masks, nested=nested)
    share = masked.mean(axis=-1, dtype=np.float64)
    safe = np.where(share > 0, share, 1.0)
    weights: np.ndarray = masked * (safe**stage_power / safe)[..., None]
    if token == "inv_freq":
        weights /= np.maximum(masked.sum(axis=-2, dtype=np.float64), 1.0)[..., None, :]
    elif token == "exact":
        total = weights.sum(axis=-2)
        weights /= np.where(total > 0, total, 1.0)[..., None, :]
    return weights


def trajectory_weights(masks: ArrayLike, *, stage_balance: float) -> Weights:
    """Weights of the trajectory estimator: only tokens that a step reveals count there.

    ``a_ik = c_i`` on the n_i tokens that step i reveals, ``c_i`` proportional to
    ``n_i^-balance`` with ``sum_k W_k = N``. Balance 0 is the exact policy gradient of a
    decode order that does not depend on the policy (every token 1); balance 1 gives every
    stage the same credit.

    Args:
        masks: (..., T, N) bool, nested.
        stage_balance: 0 is uniform over tokens, 1 over stages.

    Raises:
        ValueError: The masks are not nested, or the balance is not finite.

    References:
        Luo et al. 2025, Mask-GRPO, arXiv 2510.13418 (balance 0); the balance is ours.
    """
    if not np.isfinite(stage_balance):
        raise ValueError(f"stage_balance must be finite, got {stage_balance}")
    masked = _as_masks(masks, nested=True)
    after = np.concatenate([masked[..., 1:, :], np.zeros_like(masked[..., :1, :])], axis=-2)
    revealed = masked & ~after
    count = revealed.sum(axis=-1, dtype=np.float64)
    scale = np.where(count > 0, count, 1.0) ** -stage_balance  # a stage without tokens uses none
    total = (scale * count).sum(axis=-1, keepdims=True)
    scale = scale / np.where(total > 0, total, 1.0) * masked.shape[-1]
    weights: np.ndarray = revealed * scale[..., None]
    return weights


def full_mask_weights(masks: ArrayLike) -> Weights:
    """Weights of the full-mask estimator: all tokens at the fully masked stage, no other.

    The limit of an ever larger stage power, and what diffu-GRPO trains on.

    Raises:
        ValueError: No stage masks every token.

    References:
        Zhao et al. 2025, d1, arXiv 2504.12216.
    """
    masked = _as_masks(masks, nested=False)
    full = masked.all(axis=-1)
    if not full.any(axis=-1).all():
        raise ValueError("the full-mask estimator needs a stage where every token is masked")
    weights: np.ndarray = (full / full.sum(axis=-1, keepdims=True))[..., None] * masked
    return weights


def normalize_mass(weights: ArrayLike) -> Weights:
    """Scale so that the mean token weight is 1: options then differ in shape, not in step size.

    Raises:
        ValueError: All weights of a sample are 0.
    """
    array = np.asarray(weights, dtype=np.float64)
    mass = array.sum(axis=(-2, -1), keepdims=True) / array.shape[-1]
    if not (mass > 0).all():
        raise ValueError("weights of a sample must not all be 0")
    scaled: np.ndarray = array / mass
    return scaled


def token_weight(weights: ArrayLike) -> Float[np.ndarray, "*batch tokens"]:
    """W_k, how much the gradient weighs each token: the sum over stages."""
    total: np.ndarray = np.asarray(weights, dtype=np.float64).sum(axis=-2)
    return total


def stage_credit(weights: ArrayLike) -> Float[np.ndarray, "*batch steps"]:
    """C_i, how much of the gradient each stage carries: the mean over tokens."""
    total: np.ndarray = np.asarray(weights, dtype=np.float64).mean(axis=-1)
    return total


def stage_density(
    shares: ArrayLike, *, power: float, sampling: Literal["uniform", "lambda"]
) -> Float[np.ndarray, "*batch steps"]:
    """Probability of drawing each stage when only some are trained on.

    Dividing a drawn stage's weight by (draws x probability) is unbiased for the full sum,
    whatever the density; ``lambda`` (proportional to t^p) makes the ELBO's drawn weights
    equal to a plain mean over masked tokens.

    Args:
        shares: (..., T) masked shares t_i; a stage with share 0 is never drawn.
        power: p of the stage factor.
        sampling: Every non-empty stage alike, or in proportion to t^p.

    Raises:
        ValueError: All stages are empty.
    """
    share = np.asarray(shares, dtype=np.float64)
    density = (share > 0) * (share**power if sampling == "lambda" else 1.0)
    total = density.sum(axis=-1, keepdims=True)
    if not (total > 0).all():
        raise ValueError("every stage is empty: no stage can be drawn")
    drawn: np.ndarray = density / total
    return drawn
