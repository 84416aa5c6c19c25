"""The published input: ratios ``E[r | x_t] / E[r | prompt]``, squared and averaged."""

import numpy as np

from recast_train.credit.estimators.base import (
    Array,
    Estimate,
    Samples,
    Sums,
    from_parts,
    prompt_index,
    prompt_weights,
)
from recast_train.credit.estimators.cross_fit import Predictions, predict


def ratios(
    samples: Samples,
    *,
    replicates: int = 200,
    generator: np.random.Generator,
    folds: int = 4,
) -> Estimate:
    """Second moment of the ratio that a regression predicts, without any correction.

    The paper does not say how it estimates ``E[r | x_t]``; here it is a cross-fitted
    regression. Its variance is not its covariance with the reward, so a poor fit is off in
    either direction: marked biased.

    Args:
        samples: With ``x0_rewards`` or ``features``.
        replicates: Bootstrap draws over prompts.
        generator: Draws folds and bootstrap.
        folds: See ``cross_fit``.
    """
    found = predict(samples, folds=folds, generator=generator)
    prompts = prompt_index(samples.prompts)
    square = found.values**2
    total = np.zeros((int(prompts.max()) + 1, *square.shape[:2]))
    np.add.at(total, prompts, np.moveaxis(np.nan_to_num(square), -1, 0))
    count = np.zeros_like(total)
    np.add.at(count, prompts, np.moveaxis((~np.isnan(square)).astype(np.float64), -1, 0))
    parts = [Sums(total, count)]
    return from_parts(
        "ratios",
        samples,
        parts,
        weights=prompt_weights(samples, replicates, generator),
        biased=True,
    )


def observed_ratios(samples: Samples, found: Predictions) -> Array:
    """(K, N', P + 1) ratios at the probes and, last, at sigma = 0, as the published code reads.

    Args:
        samples: Rewards >= 0.
        found: Predictions from these samples.

    Returns:
        Ratios clipped at 0, over the samples that every reward scored.

    Raises:
        ValueError: A reward is negative, or a prompt's mean is 0, so that no ratio exists.
    """
    rewards = samples.rewards
    there = ~np.isnan(rewards).any(axis=0)
    if (rewards[:, there] < 0).any():
        raise ValueError(f"ratios need rewards >= 0, got {np.nanmin(rewards)}")
    prompts = prompt_index(samples.prompts[there])
    kept = rewards[:, there]
    count = np.bincount(prompts)
    mean = np.stack([np.bincount(prompts, row) / count for row in kept])
    alive = (mean.min(axis=0) > 0)[prompts]
    if not alive.any():
        raise ValueError("no prompt has a positive mean of every reward: no ratio exists")
    base = mean[:, prompts][:, alive]
    guess = np.maximum(base[:, None] + found.values[:, :, there][:, :, alive], 0.0)
    last = kept[:, None, alive]
    out: Array = np.moveaxis(np.concatenate([guess, last], axis=1) / base[:, None], 1, 2)
    return out
