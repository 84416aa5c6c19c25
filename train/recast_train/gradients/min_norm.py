"""The shortest vector in the convex hull of K gradients, from their inner products."""

from itertools import product

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from scipy.optimize import nnls

MAX_ENUMERATED = 8
"""Up to this K all 2^K - 1 supports are solved: 255 systems of order 9, a few milliseconds."""
_PSD_TOLERANCE = 1e-7
"""Relative to the largest entry: what float32 inner products may lose."""


def min_norm_weights(gram: ArrayLike) -> Float[np.ndarray, " rewards"]:
    """Minimise ``w @ gram @ w`` over the simplex, so that no gradient is worked against.

    At the optimum ``(gram @ w)[k] >= w @ gram @ w`` for all k, with equality where
    ``w[k] > 0``: the combined direction has a non-negative product with every gradient.

    Args:
        gram: (K, K) inner products of the gradients, symmetric, positive semi-definite.

    Returns:
        (K,) float64, non-negative, sums to 1. The objective is exact to 1e-9 of the largest
        diagonal entry. Of several optima, one with a large support (equal gradients share).

    Raises:
        ValueError: Not square, not finite, not symmetric or not positive semi-definite.

    References:
        Desideri 2012, Multiple-gradient descent; Sener and Koltun 2018, arXiv:1810.04650,
        who iterate Frank-Wolfe: here supports are enumerated up to K = 8, and Lawson and
        Hanson's active set (non-negative least squares) is used beyond.
    """
    matrix = checked_gram(gram)
    scale = float(matrix.diagonal().max())
    if scale == 0.0:
        return np.full(len(matrix), 1.0 / len(matrix))
    matrix = matrix / scale
    candidates = _enumerate(matrix) if len(matrix) <= MAX_ENUMERATED else _active_set(matrix)
    objective = np.einsum("ck,kl,cl->c", candidates, matrix, candidates)
    best = np.flatnonzero(objective <= objective.min() + 1e-14)
    support = (candidates[best] > 0).sum(axis=1)
    weights: Float[np.ndarray, " rewards"] = candidates[best[support.argmax()]]
    return weights


def checked_gram(gram: ArrayLike) -> Float[np.ndarray, "rewards rewards"]:
    """A Gram matrix as float64, made exactly symmetric.

    Raises:
        ValueError: It is none: the law that it breaks, and by how much.
    """
    matrix = np.asarray(gram, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise ValueError(f"a Gram matrix is (K, K) with K >= 1, got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"a Gram matrix is finite, got {matrix[~np.isfinite(matrix)][0]}")
    size = float(np.abs(matrix).max())
    gap = float(np.abs(matrix - matrix.T).max())
    if gap > _PSD_TOLERANCE * size:
        raise ValueError(f"a Gram matrix is symmetric, entries differ by {gap:.3g}")
    matrix = (matrix + matrix.T) / 2
    if size > 0.0:
        lowest = float(eigh(matrix / size, eigvals_only=True)[0])
        if lowest < -_PSD_TOLERANCE:
            raise ValueError(
                f"a Gram matrix is positive semi-definite, eigenvalue {lowest * size:.3g}"
            )
    return matrix


def _enumerate(matrix: np.ndarray) -> np.ndarray:
    """(2^K - 1, K) feasible points, the optimum among them.

    An optimum of smallest support is the only minimiser on the affine hull of that support,
    hence its stationarity system is regular and finds it. Others may be singular (equal
    gradients) or leave the simplex; clipped, they are just further feasible points.
    """
    count = len(matrix)
    supports = np.array(list(product((False, True), repeat=count))[1:])
    systems = np.zeros((len(supports), count + 1, count + 1))
    systems[:, :count, :count] = np.where(supports[:, :, None] & supports[:, None, :], matrix, 0.0)
    systems[:, :count, count] = systems[:, count, :count] = supports
    solved = np.linalg.pinv(systems, rcond=1e-13, hermitian=True)[:, :count, count]
    points = np.where(supports, np.maximum(solved, 0.0), 0.0)
    totals = points.sum(axis=1, keepdims=True)
    points = np.where(totals > 0.0, points / np.where(totals > 0.0, totals, 1.0), np.nan)
    kept: np.ndarray = points[np.isfinite(points).all(axis=1)]
    return np.concatenate([kept, np.eye(count)])


def _active_set(matrix: np.ndarray) -> np.ndarray:
    """(1 + K, K) feasible points, the optimum first.

    With rows g_k of a factor of the Gram matrix, ``min |G^T x|^2 + (1 - sum x)^2`` over
    x >= 0 has its solution on the ray of the min-norm weights: for x = s w it is
    ``s^2 q + (1 - s)^2``, least at ``q / (1 + q)``, which rises with q = w @ gram @ w.
    """
    values, vectors = eigh(matrix)
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    system = np.vstack([factor.T, np.ones(len(matrix))])
    target = np.append(np.zeros(len(matrix)), 1.0)
    solution, _ = nnls(system, target, maxiter=100 * len(matrix))
    return np.vstack([solution / solution.sum(), np.eye(len(matrix))])
