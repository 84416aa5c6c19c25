"""W from gains: each reward's budget spread over the steps where its gain is."""

import logging

import numpy as np
import numpy.typing as npt

from recast_train.credit.margins import project

Array = npt.NDArray[np.float64]
log = logging.getLogger(__name__)


def static_weights(budgets: npt.ArrayLike, steps: int) -> Array:
    """Credit that ignores the steps: ``W[k, j] = budgets[k] / steps``.

    Args:
        budgets: (K,) shares >= 0, not all 0; normalised to sum 1.
        steps: T >= 1.

    Returns:
        (K, T) float64.

    Raises:
        ValueError: A budget is negative or not finite, all are 0, or T < 1.
    """
    if not 1 <= steps < float("inf") or int(steps) != steps:
        raise ValueError(f"steps must be a whole number >= 1, got {steps}")
    share = _shares(budgets, "budgets")
    return np.repeat((share / steps)[:, None], int(steps), axis=1)


def solve_weights(
    gains: npt.ArrayLike,
    budgets: npt.ArrayLike,
    *,
    temperature: npt.ArrayLike = 1.0,
    floor: float = 0.0,
    column_mass: npt.ArrayLike | None = None,
    cap: float | None = None,
) -> Array:
    """Spread each reward's budget over the steps where its gain is.

    Only the interaction counts: a constant added to a row or a column of
    ``ghat / temperature`` changes nothing, and rewards with the same curve get static W.

    Args:
        gains: (K, T) discriminability gained at each step, >= 0 (see ``gains``), column 0
            the noisiest step. A row that is 0 throughout, or not finite, counts as flat.
        budgets: (K,) >= 0, normalised to sum 1; a reward with budget 0 gets a zero row.
        temperature: > 0, one for all rewards or (K,); the kernel is
            ``exp(ghat / temperature)`` with ``ghat`` = gain / mean of its row.
        floor: Share in [0, 1] of static W mixed in: 0 is ReCAST, 1 static.
        column_mass: (T,) >= 0, normalised to sum 1; 1/T each if None.
        cap: Upper bound on ``ghat`` (a spike at one step has ``ghat`` = T); None for none.

    Returns:
        (K, T) float64 W: rows sum to the budgets and columns to their mass within 1e-10.

    Raises:
        ValueError: A gain, budget or mass is negative, a parameter is out of its range, or
            shapes do not fit.

    References:
        Chen et al. 2026, ReCAST, arXiv 2609.13425, eq. 1. They iterate Sinkhorn on all
        K + T duals; this solves the K row duals by Newton's method.
    """
    g = np.asarray(gains, dtype=np.float64)
    if g.ndim != 2 or g.size == 0:
        raise ValueError(f"gains must be a (K, T) matrix, got shape {g.shape}")
    share = _shares(budgets, "budgets", g.shape[0])
    if not 0.0 <= floor <= 1.0:
        raise ValueError(f"floor must be in [0, 1], got {floor}")
    if column_mass is None:
        mass, static = np.full(g.shape[1], 1.0 / g.shape[1]), share[:, None] / g.shape[1]
    else:
        mass = _shares(column_mass, "column_mass", g.shape[1])
        static = share[:, None] * mass
    kernel = log_kernel(g, temperature, cap=cap)
    if floor == 1.0 or (kernel == kernel[:, :1]).all():
        return np.broadcast_to(static, g.shape).copy()
    w = project(kernel, share, mass).weights
    return w if floor == 0.0 else floor * static + (1.0 - floor) * w


def log_kernel(
    gains: npt.ArrayLike, temperature: npt.ArrayLike = 1.0, *, cap: float | None = None
) -> Array:
    """``ghat / temperature``: gains over their row mean, so that only their shape counts.

    Args:
        gains: (K, T) >= 0.
        temperature: > 0, scalar or (K,).
        cap: Upper bound on ``ghat``.

    Returns:
        (K, T); a row without any gain, or with one that is not finite, is constant.

    Raises:
        ValueError: A gain is negative, or temperature or cap is not positive, or the
            temperature so small that the kernel overflows.
    """
    g = np.asarray(gains, dtype=np.float64)
    tau = np.asarray(temperature, dtype=np.float64)
    if tau.shape not in ((), (1,), (g.shape[0],)) or not (tau > 0).all():
        raise ValueError(
            f"temperature must be > 0, a number or ({g.shape[0]},), got {tau.tolist()}"
        )
    if cap is not None and not cap > 0:
        raise ValueError(f"cap must be > 0 or None, got {cap}")
    scale = g.max(axis=1, keepdims=True)  # NaN if any is NaN; divided out against overflow
    flat = ~(np.isfinite(scale) & (scale > 0) & np.isfinite(g).all(axis=1, keepdims=True))
    if (g < 0).any():
        raise ValueError(
            f"gains must be >= 0, got {np.nanmin(g)}: make them with gains(curves), which pools "
            "a curve that falls"
        )
    if flat.any():
        log.warning(
            "no gain at any step for reward row(s) %s: taken as flat", flat[:, 0].nonzero()[0]
        )
        g, scale = np.where(flat, 1.0, g), np.where(flat, 1.0, scale)
    relative = g / scale
    ghat = relative / relative.mean(axis=1, keepdims=True)
    if cap is not None:
        ghat = np.minimum(ghat, cap)
    with np.errstate(over="ignore"):
        out: Array = ghat / (tau[:, None] if tau.shape == (g.shape[0],) else tau)
    if not np.isfinite(out).all():
        raise ValueError(f"temperature is too small, ghat / temperature overflows: {tau.tolist()}")
    return out


def _shares(values: npt.ArrayLike, name: str, length: int | None = None) -> Array:
    """Check and normalise a vector of shares."""
    share = np.asarray(values, dtype=np.float64)
    if share.ndim != 1 or share.size == 0 or length not in (None, share.size):
        expected = "a vector" if length is None else f"({length},)"
        raise ValueError(f"{name} must be {expected}, got shape {share.shape}")
    total = float(share.sum())
    if not np.isfinite(total) or share.min() < 0 or total <= 0:
        raise ValueError(f"{name} must be finite, >= 0 and not all 0, got {share.tolist()}")
    # Dividing by 1 +- an ulp would move budgets that already sum to 1, and with them the
    # exact equality of static credit and the plain weighted sum.
    return share if abs(total - 1.0) < 1e-15 * share.size else share / total
