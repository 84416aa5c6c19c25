"""GRPO-Guard: ratios centred and put on one scale, steps reweighted, so that clipping bites.

Wang et al. 2025, arXiv:2510.22319. Both parts are switches of every member of the family
(``ratio``, ``step_weight``); one public reimplementation has the first without the second.

The clip is the authors' own: ``config/grpo_guard.py`` of their code (flow_grpo) has 2e-6 on both
sides for text rendering and GenEval, 4e-6 for PickScore, at 512 pixels of SD3.5-M; verl-omni takes
2e-6 too. The ratio is a mean over the latent's elements, whose spread falls with the square root
of their number, so that a small model needs a wider one (``starter-grpo-guard``).
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
    """Half-width of the trust region for the normalised ratio, see the module."""


METHOD = MethodSpec(
    name="grpo-guard",
    policy_kind="velocity",
    config=GrpoGuardConfig,
    build=PolicyGradient,
    summary="Flow-GRPO with normalised ratios and 1/|dt| step weights",
    reference="Wang et al. 2025, arXiv:2510.22319",
)
