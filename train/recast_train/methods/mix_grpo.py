"""MixGRPO: a window of stochastic steps that slides from the noisy end as training goes on.

Li et al. 2025, arXiv:2507.21802. Its window moves every ``every`` training iterations, here
epochs, and stays at the end; the SD3.5-Medium setting moved every 150, with a KL of 1e-3.
"""

from dataclasses import dataclass
from typing import Annotated

from recast_train.methods._policy_gradient import (
    PolicyGradient,
    PolicyGradientConfig,
    WindowConfig,
    laid_over,
)
from recast_train.methods.base import MethodSpec

WINDOW = WindowConfig(kind="sliding", size=4, every=25)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixGrpoConfig(PolicyGradientConfig):
    """Four steps, one further every 25 epochs."""

    window: Annotated[WindowConfig, laid_over(WINDOW)] = WINDOW
    shared_noise: bool = True
    kl: float = 0.0


METHOD = MethodSpec(
    name="mix-grpo",
    policy_kind="velocity",
    config=MixGrpoConfig,
    build=PolicyGradient,
    summary="MixGRPO: stochastic steps in a sliding window, ODE elsewhere",
    reference="Li et al. 2025, arXiv:2507.21802",
)
