"""Stable Diffusion 3: any ``StableDiffusion3Pipeline`` folder or hub id, and the starter."""

from typing import Any

from recast_train.policies.base import PolicySetup, PolicySpec
from recast_train.policies.sd3.config import Sd3Config


def _build(config: Sd3Config, setup: PolicySetup) -> Any:
    from recast_train.policies.sd3.policy import build  # here: diffusers takes seconds to import

    return build(config, setup)


POLICY = PolicySpec(
    name="sd3",
    policy_kind="velocity",
    config=Sd3Config,
    build=_build,
    solvers=("euler", "dpm2"),
    shards=True,
    summary="SD3 and SD3.5 with LoRA on the joint attention",
)
