"""Several gradients, one direction: everything here needs only their Gram matrix."""

from recast_train.gradients.amortise import Mixture, mixture
from recast_train.gradients.balance import Balance, balance, cosines, worst_cosine
from recast_train.gradients.min_norm import min_norm_weights
from recast_train.gradients.rivals import cagrad_weights, mgda_weights, pcgrad_weights

__all__ = [
    "Balance",
    "Mixture",
    "balance",
    "cagrad_weights",
    "cosines",
    "mgda_weights",
    "min_norm_weights",
    "mixture",
    "pcgrad_weights",
    "worst_cosine",
]
