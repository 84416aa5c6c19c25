"""Forward pairs: the unbiased estimator, at the price of one completion a sample."""

import numpy as np

from recast_train.credit.estimators.base import (
    Array,
    Estimate,
    Samples,
    Sums,
    from_parts,
    products,
    prompt_index,
    prompt_weights,
)


def forward_pair(
    samples: Samples, *, replicates: int = 200, generator: np.random.Generator
) -> Estimate:
    """Covariance of a sample's reward with that of a stochastic completion of its x_t.

    Noise a rollout x_0 to x_t. Then x_0 itself is a draw from the posterior given x_t, so
    one completion x_0' makes an independent pair: ``Cov(r(x_0), r(x_0')) = Var(E[r | x_t])``
    (a U-statistic of order two). Both are centred on their prompt first, without which a
    reward of mean .85 and deviation .03 would need 1900 times the samples.

    The completion must be the time reversal of the noising (ancestral, DDIM eta = 1): an ODE
    completion is a function of x_t and reports the same number everywhere.

    Args:
        samples: With ``completions``.
        replicates: Bootstrap draws over prompts.
        generator: Draws them.

    Returns:
        Unbiased up to the error of the sampler's own step size.

    Raises:
        ValueError: There are no completions, or fewer than two prompts.
    """
    prompts = prompt_index(samples.prompts)
    pairs = pair_sums(samples.rewards, require_completions(samples), prompts)
    return from_parts(
        "forward-pair", samples, [pairs], weights=prompt_weights(samples, replicates, generator)
    )


def pair_sums(rewards: Array, completions: Array, prompts: np.ndarray) -> Sums:
    """(C, K, P) within-prompt products of (K, N) with (P, K, N)."""
    other = np.moveaxis(completions, 0, 1)
    return products(np.broadcast_to(rewards[:, None], other.shape), other, prompts)


def require_completions(samples: Samples) -> Array:
    """The completions.

    Raises:
        ValueError: There are none.
    """
    if samples.completions is None:
        raise ValueError("this estimator needs completions of the noised samples, got none")
    return samples.completions
