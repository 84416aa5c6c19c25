"""MARBLE: unit gradients, their min-norm point, refreshed every N steps."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from recast_train.aggregators._balancing import Balancer, BalancingConfig, Solution
from recast_train.aggregators.base import AggregatorSpec
from recast_train.gradients import balance


@dataclass(frozen=True, slots=True, kw_only=True)
class MarbleConfig(BalancingConfig):
    """The published procedure by default."""

    amortise: Literal["alpha", "scaled"] = "alpha"
    """Between refreshes mix advantages with alpha, which was solved for unit gradients
    (published), or with alpha over the gradients' norms, which reproduces the refresh step."""


def build(config: MarbleConfig, budgets: np.ndarray) -> Balancer:
    """MARBLE for K rewards."""

    def solve(gram: np.ndarray, refresh: int) -> Solution:
        found = balance(gram)
        if config.amortise == "alpha":
            return Solution(found.weights, found.alpha, for_unit=True)
        return Solution(found.weights, found.weights)

    return Balancer(config, budgets, solve)


AGGREGATOR = AggregatorSpec(
    name="marble",
    config=MarbleConfig,
    build=build,
    summary="equal progress on every reward: min-norm point of the normalised gradients",
    reference="arXiv:2605.06507",
)
