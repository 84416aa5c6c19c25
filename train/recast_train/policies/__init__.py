"""Models that draw: SD3 and masked tokens, behind one interface; a file (or package) each."""

from recast_eval.plugins import Registry
from recast_train.policies.base import PolicySpec

POLICIES: Registry[PolicySpec] = Registry("recast.policies", "recast_train.policies", "POLICY")

__all__ = ["POLICIES"]
