"""TempFlow-GRPO: branch a deterministic rollout at one step, credit that step, weigh by noise.

He et al. 2025, arXiv:2508.04324. A group of G shares its initial noise; every ``branches``
samples of it share a branching step, so G / branches steps are explored in a group.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from recast_train.methods._policy_gradient import (
    PolicyGradient,
    PolicyGradientConfig,
    WindowConfig,
    laid_over,
)
from recast_train.methods.base import MethodSpec

WINDOW = WindowConfig(kind="branch", size=1, high=0.9, branches=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class TempFlowConfig(PolicyGradientConfig):
    """One stochastic step a sample; six samples a step in the authors' setting of 24."""

    window: Annotated[WindowConfig, laid_over(WINDOW)] = WINDOW
    shared_noise: bool = True
    step_weight: Literal["none", "inverse_dt", "noise"] = "noise"


METHOD = MethodSpec(
    name="tempflow",
    policy_kind="velocity",
    config=TempFlowConfig,
    build=PolicyGradient,
    summary="TempFlow-GRPO: branching at one step, noise-aware step weights",
    reference="He et al. 2025, arXiv:2508.04324",
)
