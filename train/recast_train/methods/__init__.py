"""RL methods, a file each."""

from recast_eval.plugins import Registry
from recast_train.methods.base import MethodSpec

METHODS: Registry[MethodSpec] = Registry("recast.methods", "recast_train.methods", "METHOD")

__all__ = ["METHODS"]
