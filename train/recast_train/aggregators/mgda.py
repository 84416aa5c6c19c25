"""MGDA: the min-norm point of the gradients as they are. A rival of MARBLE."""

import numpy as np

from recast_train.aggregators._balancing import Balancer, BalancingConfig, Solution
from recast_train.aggregators.base import AggregatorSpec
from recast_train.gradients import mgda_weights


def build(config: BalancingConfig, budgets: np.ndarray) -> Balancer:
    """MGDA for K rewards, amortised as MARBLE is."""

    def solve(gram: np.ndarray, refresh: int) -> Solution:
        weights = mgda_weights(gram)
        return Solution(weights, weights)

    return Balancer(config, budgets, solve)


AGGREGATOR = AggregatorSpec(
    name="mgda",
    config=BalancingConfig,
    build=build,
    summary="min-norm point of the raw gradients; the weakest reward takes most of the weight",
    reference="Desideri 2012; arXiv:1810.04650",
)
