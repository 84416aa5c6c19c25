"""Losses as plain functions of tensors."""

from recast_train.losses.awm import matching_log_prob
from recast_train.losses.policy_gradient import PolicyGradientLoss, policy_gradient_loss

__all__ = ["PolicyGradientLoss", "matching_log_prob", "policy_gradient_loss"]
