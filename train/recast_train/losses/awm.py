"""Advantage-weighted matching: policy gradient with the flow-matching loss as log-likelihood."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor

Likelihood = Literal["uniform", "t", "t2", "huber", "ghuber"]


def matching_log_prob(
    velocity: Float[Tensor, " batch *sample"],
    target: Float[Tensor, " batch *sample"],
    sigma: Float[Tensor, " batch"],
    *,
    kind: Likelihood = "ghuber",
    power: float = 0.25,
    floor: float = 1e-4,
) -> Float[Tensor, " batch"]:
    """How likely the policy finds a clean sample: minus its matching error, bent and weighted.

    With l the squared error's mean over a sample: ``uniform`` -l, ``t`` -t l, ``t2`` -t^2 l,
    ``huber`` -t (sqrt(l + floor^2) - floor), ``ghuber`` -(t / power) (m^power - floor^(2 power))
    with m = l + floor^2. Zero for a perfect velocity.

    Args:
        velocity: Of the policy at the noised sample; keeps its graph.
        target: ``noise - x_0`` of the same noise.
        sigma: Noise level t in (0, 1].
        kind: Which of the above.
        power: Exponent of ``ghuber`` in (0, 1]; 1 gives ``t`` back.
        floor: Where the two Huber kinds turn from quadratic; above 0, so that the gradient at
            a perfect velocity is finite.

    Returns:
        (batch,) surrogate log-likelihoods, at most 0: only differences count.

    Raises:
        ValueError: A switch is out of its range.

    References:
        Xue et al. 2025, Advantage Weighted Matching, arXiv:2509.25050, whose ghuber is
        (t / p) (l^p - eps^p); the floor inside the power keeps it differentiable at l = 0.
    """
    if not 0.0 < power <= 1.0 or not floor > 0.0:
        raise ValueError(f"power must be in (0, 1] and floor positive, got {power} and {floor}")
    wide = (velocity.float() if velocity.element_size() < 4 else velocity) - target
    error = wide.square().flatten(1).mean(dim=1)
    if kind == "uniform":
        return -error
    if kind == "t":
        return -sigma * error
    if kind == "t2":
        return -sigma.square() * error
    exponent, divisor = (0.5, 1.0) if kind == "huber" else (power, power)
    bent: Tensor = (error + floor**2).pow(exponent) - floor ** (2 * exponent)
    return -sigma * bent / divisor
