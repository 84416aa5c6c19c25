"""CAGrad: the worst-off reward improves most, near the mean gradient. A rival of MARBLE."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from recast_train.aggregators._balancing import Balancer, BalancingConfig, Solution
from recast_train.aggregators.base import AggregatorSpec
from recast_train.gradients import cagrad_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class CAGradConfig(BalancingConfig):
    """Refreshes, and the ball around the mean gradient."""

    radius: float = 0.5
    """c: 0 is the mean gradient, large values approach MGDA's direction."""

    def problems(self) -> Iterator[str]:
        """What is out of range."""
        yield from BalancingConfig.problems(self)
        if self.radius < 0.0:
            yield f"radius: must not be negative, got {self.radius}"


def build(config: CAGradConfig, budgets: np.ndarray) -> Balancer:
    """CAGrad for K rewards, amortised as MARBLE is."""

    def solve(gram: np.ndarray, refresh: int) -> Solution:
        weights = cagrad_weights(gram, config.radius)
        return Solution(weights, weights)

    return Balancer(config, budgets, solve)


AGGREGATOR = AggregatorSpec(
    name="cagrad",
    config=CAGradConfig,
    build=build,
    summary="maximises the worst improvement within a ball around the mean gradient",
    reference="arXiv:2110.14048",
)
