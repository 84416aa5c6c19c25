"""Masked image models of aMUSEd's classes: the masked starter, aMUSEd-256, your own folder."""

from typing import Any

from recast_train.policies.base import PolicySetup, PolicySpec
from recast_train.policies.masked.config import MaskedConfig


def _build(config: MaskedConfig, setup: PolicySetup) -> Any:
    from recast_train.policies.masked.policy import build  # here: diffusers takes seconds

    return build(config, setup)


POLICY = PolicySpec(
    name="masked",
    policy_kind="masked",
    config=MaskedConfig,
    build=_build,
    solvers=("random", "halton", "emerge", "confidence"),
    summary="UVit2DModel on palette or VQ tokens, with LoRA; the solver is the decode order",
)
