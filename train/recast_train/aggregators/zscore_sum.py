"""GDPO: z-score each reward in its group, mix by budget, normalise over the batch."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recast_train.aggregators._fixed import FixedMixture
from recast_train.aggregators.base import AggregatorSpec
from recast_train.recipe_types import STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class ZScoreSumConfig:
    """How far the published normalisation goes."""

    __pydantic_config__: ClassVar = STRICT

    whiten: bool = True
    """Normalise the mixture over the batch, as published; False leaves it."""


def build(config: ZScoreSumConfig, budgets: np.ndarray) -> FixedMixture:
    """GDPO for K rewards."""
    return FixedMixture(budgets, "zscore", config.whiten)


AGGREGATOR = AggregatorSpec(
    name="zscore-sum",
    config=ZScoreSumConfig,
    build=build,
    summary="per-reward z-scores mixed by budget, the mixture normalised over the batch",
    reference="arXiv:2601.05242",
)
