"""Published rivals of MARBLE, as coefficients on K gradients: d = sum_k w_k g_k.

PCGrad and CAGrad are TorchJD's. Its MGDA stops Frank-Wolfe at a step of 1e-3; ours is exact.
"""

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike

from recast_eval.errors import PluginError
from recast_train.gradients.min_norm import checked_gram, min_norm_weights


def mgda_weights(gram: ArrayLike) -> Float[np.ndarray, " rewards"]:
    """MGDA on gradients as they are, without normalisation.

    The least norm wins most of the weight, which is why MARBLE normalises first.

    Args:
        gram: (K, K) inner products.

    Returns:
        (K,) on the simplex.

    Raises:
        ValueError: Not a Gram matrix.

    References:
        Desideri 2012; Sener and Koltun 2018, arXiv:1810.04650.
    """
    return min_norm_weights(gram)


def pcgrad_weights(gram: ArrayLike, seed: int) -> Float[np.ndarray, " rewards"]:
    """PCGrad: project each gradient off those that it conflicts with, in random order; add.

    Args:
        gram: (K, K) inner products; the diagonal is positive.
        seed: Of the random orders. TorchJD draws from torch's global generator, which is
            therefore seeded inside a fork and put back, so that all processes agree.

    Returns:
        (K,) float64, at least 1 each; they need not sum to 1.

    Raises:
        ValueError: Not a Gram matrix, or a gradient is zero.
        PluginError: TorchJD is not installed.

    References:
        Yu et al. 2020, Gradient Surgery, arXiv:2001.06782.
    """
    try:
        from torchjd.aggregation import PCGradWeighting
    except ImportError as error:
        raise _missing("PCGrad", error) from error
    matrix = torch.from_numpy(_positive(gram))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return np.asarray(PCGradWeighting()(matrix).numpy(), dtype=np.float64)


def cagrad_weights(gram: ArrayLike, radius: float = 0.5) -> Float[np.ndarray, " rewards"]:
    """CAGrad: improve the worst-off reward most, within a ball around the mean gradient.

    Args:
        gram: (K, K) inner products; the diagonal is positive.
        radius: c, the ball's radius in units of the mean gradient's norm. 0 is the mean.

    Returns:
        (K,) float64, non-negative; they sum to 1 plus what the radius adds. Zeros where the
        gradients cancel (a Pareto-stationary point).

    Raises:
        ValueError: Not a Gram matrix, a gradient is zero, or ``radius`` is negative.
        PluginError: TorchJD or its solver is not installed.

    References:
        Liu et al. 2021, Conflict-Averse Gradient Descent, arXiv:2110.14048. Their code
        divides the direction by 1 + c^2 afterwards; this does not.
    """
    if not radius >= 0.0:
        raise ValueError(f"CAGrad's radius must be 0 or more, got {radius}")
    matrix = _positive(gram)
    try:
        from torchjd.aggregation import CAGradWeighting

        weighting = CAGradWeighting(c=radius, norm_eps=1e-12)
    except ImportError as error:
        raise _missing("CAGrad", error) from error
    scaled = torch.from_numpy(matrix / matrix.diagonal().max())
    return np.asarray(weighting(scaled).numpy(), dtype=np.float64)


def _positive(gram: ArrayLike) -> np.ndarray:
    matrix = checked_gram(gram)
    if not (matrix.diagonal() > 0.0).all():
        raise ValueError(f"every gradient needs a positive norm, got {matrix.diagonal().min()}")
    return matrix


def _missing(name: str, error: ImportError) -> PluginError:
    return PluginError(
        f"{name} is TorchJD's and needs more packages: pip install 'recast-eval[rivals]' ({error})"
    )
