"""ReCAST: which reward counts at which denoising step. Pure NumPy, float64."""

from recast_eval.plugins import Registry
from recast_train.credit.apply import reward_step_advantages, step_advantages
from recast_train.credit.base import Credit, CreditSetup, CreditSpec, Probes
from recast_train.credit.curves import discriminability, gains
from recast_train.credit.solver import solve_weights, static_weights

CREDITS: Registry[CreditSpec] = Registry("recast.credits", "recast_train.credit.kinds", "CREDIT")

__all__ = [
    "CREDITS",
    "Credit",
    "CreditSetup",
    "CreditSpec",
    "Probes",
    "discriminability",
    "gains",
    "reward_step_advantages",
    "solve_weights",
    "static_weights",
    "step_advantages",
]
