"""KL projection of a kernel onto given row and column sums.

The nearest point of ``{W >= 0, W 1 = rows, W' 1 = columns}`` to ``exp(L)`` has the form
``W[k, t] = c_t softmax_k(L[k, t] + u_k)``, so the columns are exact for any ``u`` and only
the K numbers ``u`` are unknown: they minimise the convex
``F(u) = sum_t c_t logsumexp_k(L[k, t] + u_k) - rows . u``, whose gradient is the error of
the row sums. Newton needs four to six steps where Sinkhorn needs tens of sweeps.
"""

import logging
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dposv

Array = npt.NDArray[np.float64]
log = logging.getLogger(__name__)

MARGIN = 1e-10
"""Largest row-sum error that is accepted as solved."""
_TOLERANCE = 1e-13
_STRIDE = 40.0
"""Longest step of a dual in log units: exp of it is still far from overflow."""
_HUGE = 1e30
"""Curvature that pins the gauge."""


class Projection(NamedTuple):
    """A solved W and how it was found."""

    weights: Array
    """(K, T)."""
    potentials: Array
    """(K,) row duals ``u``; a warm start for a kernel nearby."""
    iterations: int
    row_error: float
    """Largest error of a row sum; columns are exact."""
    method: str
    """``newton``, ``continuation`` or ``sinkhorn``."""


def project(
    kernel: npt.ArrayLike,
    rows: npt.ArrayLike,
    columns: npt.ArrayLike,
    *,
    start: npt.ArrayLike | None = None,
) -> Projection:
    """KL-project ``exp(kernel)`` onto given row and column sums.

    Args:
        kernel: (K, T) finite logarithms.
        rows: (K,) >= 0, sum 1. A zero row is left out and put back as zeros.
        columns: (T,) >= 0, sum 1.
        start: (K,) potentials of a kernel nearby.

    Returns:
        The unique W. Newton's method first; if it stalls (a spike of hundreds of log units
        makes F nearly piecewise linear), Newton along a growing kernel; then Sinkhorn; and
        if even that misses ``MARGIN``, the static W with a warning.

    Raises:
        ValueError: The kernel is not finite.
    """
    z = np.asarray(kernel, dtype=np.float64)
    r, c = np.asarray(rows, dtype=np.float64), np.asarray(columns, dtype=np.float64)
    if not np.isfinite(z).all():
        raise ValueError("kernel must be finite: -inf leaves some budgets without a solution")
    if (r > 0).all():
        return _project(z, r, c, None if start is None else np.asarray(start, np.float64))
    kept = r > 0
    part = _project(z[kept], r[kept], c, None if start is None else np.asarray(start)[kept])
    w, u = np.zeros(z.shape), np.zeros(r.shape)
    w[kept], u[kept] = part.weights, part.potentials
    return part._replace(weights=w, potentials=u)


def _project(z: Array, r: Array, c: Array, start: Array | None) -> Projection:
    if len(r) == 1 or len(c) == 1:
        return Projection(r[:, None] * c, np.log(r), 0, 0.0, "newton")
    first = np.log(r) if start is None else start
    done = _newton(z, r, c, first, 30)
    if done.row_error > MARGIN / 10:
        done = _continuation(z, r, c, done.iterations)
    if done.row_error > MARGIN / 10:
        done = min(done, sinkhorn(z, r, c), key=lambda found: found.row_error)
    if not done.row_error <= MARGIN:
        log.warning("W not solved (row error %.1e): static W instead", done.row_error)
        done = Projection(r[:, None] * c, np.log(r), done.iterations, 0.0, "static")
    return done


def _newton(z: Array, r: Array, c: Array, u: Array, limit: int) -> Projection:
    """Damped Newton on F; every iterate has exact columns."""
    gauge = int(r.argmax())  # the largest budget's dual stays put
    base = _absorb(z, u)
    q, s, grad = _evaluate(base, 1.0, c, r)
    error, count = _largest(grad), 0
    while error > _TOLERANCE and count < limit:
        count += 1
        d = _direction(q, c, r, grad, gauge)
        slope, length = float(grad @ d), 1.0
        for _ in range(40):
            trial_q, trial_s, trial = _evaluate(base, np.exp(length * d)[:, None], c, r)
            found = _largest(trial)
            # F need only be looked at if neither its gradient nor its slope shows progress.
            if found < 0.5 * error or trial @ d <= 0:
                break
            fall = float(c @ np.log(trial_s / s)) - length * float(r @ d)
            if fall <= 1e-4 * slope * length:
                break
            length *= 0.5
        if found >= error and error < MARGIN / 100:
            break  # rounding is all that is left
        step = length * d
        u = u + step
        base, q, grad, error = trial_q, trial_q, trial, found
        if _largest(step) > 10.0:  # bring back what a long step drove into underflow
            base = _absorb(z, u)
            q, s, grad = _evaluate(base, 1.0, c, r)
        else:
            s = np.ones_like(s)
    return Projection(q * c, u, count, error, "newton")


def _absorb(z: Array, u: Array) -> Array:
    shifted = z + u[:, None]
    out: Array = np.exp(shifted - shifted.max(axis=0))
    return out


def _evaluate(base: Array, factor: Array | float, c: Array, r: Array) -> tuple[Array, Array, Array]:
    """Softmax over rewards of ``log(base * factor)``, the sums it was divided by, F's gradient."""
    scaled = base * factor
    s = scaled.sum(axis=0)
    scaled /= s
    return scaled, s, scaled @ c - r


def _largest(values: Array) -> float:
    # K is at most a handful: a list is faster than two ufuncs.
    return float(max(map(abs, values.tolist())))


def _direction(q: Array, c: Array, r: Array, grad: Array, gauge: int) -> Array:
    """Newton direction with the gauge fixed, no longer than ``_STRIDE``."""
    mass = grad + r
    hessian = (q * -c) @ q.T
    # A saturated softmax has no curvature left: this much keeps the matrix positive definite
    # and is far below any curvature that matters.
    hessian.ravel()[:: len(r) + 1] += mass + 1e-14 * np.maximum(mass, r)
    hessian[gauge, gauge] = _HUGE
    _, d, info = dposv(hessian, -grad)
    if info:
        hessian.ravel()[:: len(r) + 1] += 1e-8 * np.maximum(mass, r)
        d = np.linalg.lstsq(hessian, -grad, rcond=None)[0]
    d[gauge] = 0.0
    longest = _largest(d)
    out: Array = d if longest <= _STRIDE else d * (_STRIDE / longest)
    return out


def _continuation(z: Array, r: Array, c: Array, spent: int) -> Projection:
    """Newton along ``scale * kernel``, scale doubling to 1, with extrapolated starts."""
    centred = z - z.mean(axis=0)
    stages = max(int(np.ceil(np.log2(max(float(np.ptp(centred)), 1.0)))), 1)
    before = here = np.log(r)
    scale, previous = 0.5**stages, 0.0
    while True:
        done = _newton(scale * centred, r, c, here, 60)
        spent += done.iterations
        if scale >= 1.0:
            return done._replace(iterations=spent, method="continuation")
        rate = (done.potentials - before) / (scale - previous)
        before, previous = done.potentials, scale
        scale *= 2.0
        here = before + rate * (scale - previous)


def sinkhorn(
    kernel: npt.ArrayLike,
    rows: npt.ArrayLike,
    columns: npt.ArrayLike,
    *,
    tolerance: float = 1e-12,
    sweeps: int = 10_000,
) -> Projection:
    """Log-domain Sinkhorn, rows first, so that columns are exact at exit.

    Args:
        kernel: (K, T) finite logarithms.
        rows: (K,) > 0, sum 1.
        columns: (T,) >= 0, sum 1.
        tolerance: Largest row-sum error to stop at.
        sweeps: Most sweeps; the caller looks at ``row_error``.

    References:
        Sinkhorn and Knopp 1967; Cuturi 2013, arXiv 1306.0895.
    """
    z = np.asarray(kernel, dtype=np.float64)
    r, c = np.asarray(rows, dtype=np.float64), np.asarray(columns, dtype=np.float64)
    log_r, log_c = np.log(r), np.log(np.maximum(c, 1e-300))
    u, v = np.zeros(len(r)), np.zeros(len(c))
    for done in range(1, sweeps + 1):  # noqa: B007 - reported
        u = log_r - _logsumexp(z + v, 1)
        v = log_c - _logsumexp(z + u[:, None], 0)
        w = np.exp(u[:, None] + z + v)
        error = float(np.abs(w.sum(axis=1) - r).max())
        if error <= tolerance:
            break
    return Projection(w, u, done, error, "sinkhorn")


def _logsumexp(values: Array, axis: int) -> Array:
    top = values.max(axis=axis, keepdims=True)
    out: Array = np.log(np.exp(values - top).sum(axis=axis)) + top.squeeze(axis)
    return out
