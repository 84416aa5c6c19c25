"""Kinds of credit, a file each."""

from recast_eval.plugins import Registry
from recast_train.credit.base import CreditSpec

CREDITS: Registry[CreditSpec] = Registry("recast.credits", "recast_train.credit.kinds", "CREDIT")

__all__ = ["CREDITS"]
