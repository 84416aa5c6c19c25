"""Estimators of how much of a reward is decided at each noise level, one interface.

Each takes ``Samples`` and gives an ``Estimate``: ``ICC = Var(E[r | x_t]) / Var(r)`` within
prompts at the probed noise levels, with bootstrap replicates over prompts.
"""

from collections.abc import Callable

from recast_train.credit.estimators.base import Estimate, Samples
from recast_train.credit.estimators.corrected import corrected
from recast_train.credit.estimators.cross_fit import cross_fit
from recast_train.credit.estimators.forward_pair import forward_pair
from recast_train.credit.estimators.plug_in import plug_in
from recast_train.credit.estimators.ratios import ratios

ESTIMATORS: dict[str, Callable[..., Estimate]] = {
    "forward-pair": forward_pair,
    "cross-fit": cross_fit,
    "corrected": corrected,
    "ratios": ratios,
    "plug-in": plug_in,
}
"""Name -> ``(samples, *, replicates, generator) -> Estimate``."""

__all__ = [
    "ESTIMATORS",
    "Estimate",
    "Samples",
    "corrected",
    "cross_fit",
    "forward_pair",
    "plug_in",
    "ratios",
]
