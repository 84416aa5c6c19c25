"""GRPO-Guard: ratios centred and put on one scale, steps reweighted, so that clipping bites.

Wang et al. 2025, arXiv:2510.22319. Both parts are switches of every member of the family
(``ratio``, ``step_weight``); one public reimplementation has the first without the second.
"""

from dataclasses import dataclass
from typing import Literal

from recast_train.methods._policy_gradient import PolicyGradient, PolicyGradientConfig
from recast_train.methods.base import MethodSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoGuardConfig(PolicyGradientConfig):
    """Both corrections, and a trust region for ratios on their scale."""

    ratio: Literal["plain", "guard"] = "guard"
    step_weight: Literal["none", "inverse_dt", "noise"] = "inverse_dt"
    clip: float = 2e-6


METHOD = MethodSpec(
    name="grpo-guard",
    policy_kind="velocity",
    config=GrpoGuardConfig,
    build=PolicyGradient,
    summary="Flow-GRPO with normalised ratios and 1/|dt| step weights",
    reference="Wang et al. 2025, arXiv:2510.22319",
)
