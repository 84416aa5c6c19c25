"""PCGrad: conflicting gradients are projected off each other. A rival of MARBLE."""

from dataclasses import dataclass

import numpy as np

from recast_train.aggregators._balancing import Balancer, BalancingConfig, Solution
from recast_train.aggregators.base import AggregatorSpec
from recast_train.gradients import pcgrad_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class PCGradConfig(BalancingConfig):
    """Refreshes, and the random orders of the projections."""

    seed: int = 0
    """Of the orders; each refresh draws its own, the same in all processes."""


def build(config: PCGradConfig, budgets: np.ndarray) -> Balancer:
    """PCGrad for K rewards, amortised as MARBLE is, as a mean rather than a sum."""

    def solve(gram: np.ndarray, refresh: int) -> Solution:
        draw = np.random.SeedSequence((config.seed, refresh)).generate_state(1)
        weights = pcgrad_weights(gram, int(draw[0])) / len(gram)
        return Solution(weights, weights)

    return Balancer(config, budgets, solve)


AGGREGATOR = AggregatorSpec(
    name="pcgrad",
    config=PCGradConfig,
    build=build,
    summary="projects each gradient off those that it conflicts with",
    reference="arXiv:2001.06782",
)
