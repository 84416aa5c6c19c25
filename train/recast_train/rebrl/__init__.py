"""Credit over stages and tokens for masked (discrete) diffusion: pure maths."""

from recast_train.rebrl.composition import stage_mix, token_credit
from recast_train.rebrl.config import PRESETS, RebalanceConfig, estimator_weights, preset
from recast_train.rebrl.credit import (
    credit_weights,
    full_mask_weights,
    normalize_mass,
    stage_credit,
    stage_density,
    token_weight,
    trajectory_weights,
)
from recast_train.rebrl.loss import RebalancedLoss, k3_divergence, rebalanced_kl, rebalanced_loss
from recast_train.rebrl.masks import Stages, column_mass, draw_stages
from recast_train.rebrl.schedule import mask_counts, nested_masks, stage_masks

__all__ = [
    "PRESETS",
    "RebalanceConfig",
    "RebalancedLoss",
    "Stages",
    "column_mass",
    "credit_weights",
    "draw_stages",
    "estimator_weights",
    "full_mask_weights",
    "k3_divergence",
    "mask_counts",
    "nested_masks",
    "normalize_mass",
    "preset",
    "rebalanced_kl",
    "rebalanced_loss",
    "stage_credit",
    "stage_density",
    "stage_masks",
    "stage_mix",
    "token_credit",
    "token_weight",
    "trajectory_weights",
]
