"""Flow-GRPO-Fast: noise in a short random window of an otherwise deterministic rollout.

As released with Flow-GRPO (arXiv:2505.05470) with coefficients-preserving sampling
(arXiv:2509.05952) and no KL; only the window's steps are trained.
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

WINDOW = WindowConfig(kind="random", size=3, high=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowGrpoFastConfig(PolicyGradientConfig):
    """Three steps, somewhere in the noisier half."""

    solver: Literal["sde", "cps"] = "cps"
    noise_level: float = 0.8
    window: Annotated[WindowConfig, laid_over(WINDOW)] = WINDOW
    clip: float = 1e-5
    kl: float = 0.0


METHOD = MethodSpec(
    name="flow-grpo-fast",
    policy_kind="velocity",
    config=FlowGrpoFastConfig,
    build=PolicyGradient,
    summary="Flow-GRPO on a short random window of stochastic steps",
    reference="Liu et al. 2025, arXiv:2505.05470",
)
