"""How K rewards become one gradient, a file each."""

from recast_eval.plugins import Registry
from recast_train.aggregators.base import AggregatorSpec

AGGREGATORS: Registry[AggregatorSpec] = Registry(
    "recast.aggregators", "recast_train.aggregators", "AGGREGATOR"
)

__all__ = ["AGGREGATORS"]
