"""Losses as plain functions of tensors."""

from recast_train.losses.awm import matching_log_prob
from recast_train.losses.nft import NFTLoss, nft_loss
from recast_train.losses.policy_gradient import PolicyGradientLoss, policy_gradient_loss

__all__ = [
    "NFTLoss",
    "PolicyGradientLoss",
    "matching_log_prob",
    "nft_loss",
    "policy_gradient_loss",
]
