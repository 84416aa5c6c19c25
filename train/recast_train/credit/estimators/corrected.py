"""The hybrid: a cross-fitted bound, with what it misses measured by forward pairs."""

from dataclasses import replace

import numpy as np

from recast_train.credit.estimators.base import (
    Array,
    Estimate,
    Samples,
    from_parts,
    prompt_index,
    prompt_weights,
)
from recast_train.credit.estimators.cross_fit import bound_sums, predict, residual_sums
from recast_train.credit.estimators.forward_pair import pair_sums, require_completions


def corrected(
    samples: Samples,
    *,
    replicates: int = 200,
    generator: np.random.Generator,
    folds: int = 4,
) -> Estimate:
    """``E[2 r f - f^2] + E[(r - f)(r' - f)] = Var(E[r | x_t])``, for any held-out f.

    The first term is the cross-fitted bound. What it lacks is ``E[(m - f)^2]``, and since r
    and r' are independent given x_t with mean m, the product of their residuals measures
    exactly that. Where the noise starts, though, that product is as noisy as a forward pair
    while the bound is not; so the correction counts as far as it stands out of its own
    error (``correction_share``): a bound that is tight stays as precise as it is, one that
    misses half of the information is mended.

    Args:
        samples: With ``completions``, and ``x0_rewards`` or ``features``.
        replicates: Bootstrap draws over prompts.
        generator: Draws folds and bootstrap.
        folds: See ``cross_fit``.

    Raises:
        ValueError: Something is missing, or there are fewer than two prompts.
    """
    bound, correction = bound_and_correction(
        samples, replicates=replicates, generator=generator, folds=folds
    )
    share = correction_share(correction.information, correction.replicates)[:, None]
    return replace(
        bound,
        name="corrected",
        information=bound.information + share * correction.information,
        replicates=bound.replicates + share * correction.replicates,
    )


def bound_and_correction(
    samples: Samples, *, replicates: int, generator: np.random.Generator, folds: int = 4
) -> tuple[Estimate, Estimate]:
    """The cross-fitted bound and what is to be added to it, under the same bootstrap.

    Without ``same_noise``, f at the pair's own x_t is not known; the correction then is the
    plain difference of forward pair and bound, with the same mean and a little more noise.
    """
    completions = require_completions(samples)
    found = predict(samples, folds=folds, generator=generator)
    weights = prompt_weights(samples, replicates, generator)
    bound = from_parts("cross-fit", samples, [bound_sums(found)], weights=weights)
    if samples.same_noise:
        parts = [residual_sums(found, completions)]
        return bound, from_parts("correction", samples, parts, weights=weights, end=0.0)
    parts = [pair_sums(samples.rewards, completions, prompt_index(samples.prompts))]
    pair = from_parts("forward-pair", samples, parts, weights=weights)
    return bound, replace(
        pair,
        name="correction",
        information=pair.information - bound.information,
        replicates=pair.replicates - bound.replicates,
    )


def correction_share(correction: Array, replicates: Array) -> Array:
    """How much of a measured correction is signal: ``max(0, 1 - noise / size)``.

    A bound cannot be too high, so a correction that is negative on average is noise.

    Args:
        correction: (K, P).
        replicates: (B, K, P) of it.

    Returns:
        (K,) in [0, 1]: one per reward, as its levels rise and fall together.

    References:
        James and Stein 1961, the positive-part rule.
    """
    found = np.asarray(correction)
    size = np.where(found.mean(axis=1) > 0, (found**2).mean(axis=1), 0.0)
    noise = np.asarray(replicates).var(axis=0).mean(axis=1)
    ratio = np.divide(noise, size, out=np.ones_like(size), where=size > 0)
    out: Array = np.maximum(0.0, 1.0 - ratio)
    return out
