"""The plug-in, for comparison only: it is wrong, and widely used."""

import numpy as np

from recast_train.credit.estimators.base import (
    Estimate,
    Samples,
    from_parts,
    products,
    prompt_index,
    prompt_weights,
)


def plug_in(samples: Samples, *, replicates: int = 200, generator: np.random.Generator) -> Estimate:
    """Variance of ``r(x_0 estimate)`` as if it were ``E[r | x_t]``.

    It is not: a reward of a mean is no mean of rewards (a Jensen gap of either sign), and
    reward models see blurred images. Not monotone, and not 0 at pure noise.

    Args:
        samples: With ``x0_rewards``.
        replicates: Bootstrap draws over prompts.
        generator: Draws them.

    Returns:
        An estimate marked ``biased``.

    Raises:
        ValueError: There are no x0_rewards, or fewer than two prompts.
    """
    if samples.x0_rewards is None:
        raise ValueError("plug-in needs x0_rewards, got none")
    guess = np.moveaxis(samples.x0_rewards, 0, 1)
    parts = [products(guess, guess, prompt_index(samples.prompts))]
    return from_parts(
        "plug-in",
        samples,
        parts,
        weights=prompt_weights(samples, replicates, generator),
        biased=True,
    )
