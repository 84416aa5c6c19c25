"""Weighted sum: the budgets, whatever the gradients say. The baseline of all others."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recast_train.aggregators._fixed import FixedMixture
from recast_train.aggregators.base import AggregatorSpec
from recast_train.recipe_types import STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSumConfig:
    """No switches: ``mode: pre`` mixes raw rewards (as published), ``advantage`` z-scores."""

    __pydantic_config__: ClassVar = STRICT


def build(config: WeightedSumConfig, budgets: np.ndarray) -> FixedMixture:
    """A weighted sum of K rewards."""
    return FixedMixture(budgets, "raw")


AGGREGATOR = AggregatorSpec(
    name="weighted-sum",
    config=WeightedSumConfig,
    build=build,
    summary="one advantage: rewards (or their z-scores) mixed by budget",
)
