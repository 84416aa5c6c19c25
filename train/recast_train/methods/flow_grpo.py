"""Flow-GRPO: every sampling step made stochastic, its density trained by a clipped surrogate.

Liu et al. 2025, arXiv:2505.05470. Defaults are the SD3.5-Medium ones of paper and code, apart
from the KL: divided here by the step's variance, as the paper writes it.
"""

from recast_train.methods._policy_gradient import PolicyGradient, PolicyGradientConfig
from recast_train.methods.base import MethodSpec

METHOD = MethodSpec(
    name="flow-grpo",
    policy_kind="velocity",
    config=PolicyGradientConfig,
    build=PolicyGradient,
    summary="Flow-GRPO: policy gradient over a stochastic sampler's steps",
    reference="Liu et al. 2025, arXiv:2505.05470",
)
