"""Multinomial choice with linear utilities: likelihood, ridge fit, sandwich, profile, recession.

A cell is a set-up that was judged, such as "A in the first slot against B"; each of its
outcomes has a utility linear in the parameters, and the chance of an outcome is its share of
the exponentiated utilities. Davidson's tie model with an order effect is of this kind, so its
log-likelihood is concave and Newton's method with a ridge finds its only optimum.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import linalg, optimize, special

_ITERATIONS = 200
_TINY_RIDGE = 1e-7
"""Keeps a profile finite along directions that the data leave open, and changes nothing else."""
_FAR = 80.0
"""Farther than any rating: exp(-80) of a chance is not seen in any evaluation."""


class Derivatives(NamedTuple):
    """Penalised log-likelihood of each row of parameters, gradient and information."""

    value: Float[np.ndarray, " row"]
    gradient: Float[np.ndarray, "row parameter"]
    information: Float[np.ndarray, "row parameter parameter"]


def probabilities(
    features: Float[np.ndarray, "cell outcome parameter"],
    parameters: Float[np.ndarray, "row parameter"],
    offset: Float[np.ndarray, "cell outcome"] | float = 0.0,
) -> Float[np.ndarray, "row cell outcome"]:
    """Chance of each outcome of each cell under each row of parameters."""
    utilities = np.einsum("cok,rk->rco", features, parameters, optimize=True) + offset
    chances: Float[np.ndarray, "row cell outcome"] = special.softmax(utilities, axis=-1)
    return chances


def derivatives(
    features: Float[np.ndarray, "cell outcome parameter"],
    counts: Float[np.ndarray, "row cell outcome"],
    parameters: Float[np.ndarray, "row parameter"],
    ridge: float,
    offset: Float[np.ndarray, "cell outcome"] | float = 0.0,
) -> Derivatives:
    """Evaluate ``sum counts * log chance - ridge / 2 * |parameters|^2`` and its derivatives."""
    cells, outcomes, size = features.shape
    flat = features.reshape(cells * outcomes, size)
    utilities = (parameters @ flat.T).reshape(-1, cells, outcomes) + offset
    logs = special.log_softmax(utilities, axis=-1)
    chances = np.exp(logs)
    totals = counts.sum(axis=-1, keepdims=True)
    value = (counts * logs).sum(axis=(1, 2)) - ridge / 2 * (parameters**2).sum(axis=1)
    residuals = (counts - totals * chances).reshape(len(counts), -1)
    weights = (totals * chances).reshape(len(counts), -1)
    means = (chances.transpose(1, 0, 2) @ features).transpose(1, 0, 2)
    information = (flat.T[None] * weights[:, None, :]) @ flat
    information -= (means * totals).transpose(0, 2, 1) @ means
    information += ridge * np.eye(size)
    return Derivatives(value, residuals @ flat - ridge * parameters, information)


def fit(
    features: Float[np.ndarray, "cell outcome parameter"],
    counts: Float[np.ndarray, "row cell outcome"],
    *,
    ridge: float,
    offset: Float[np.ndarray, "cell outcome"] | float = 0.0,
    start: Float[np.ndarray, "row parameter"] | None = None,
) -> Float[np.ndarray, "row parameter"]:
    """Maximise the penalised likelihood of each row of counts by damped Newton steps.

    Args:
        features: What each outcome's utility adds up from.
        counts: How often each outcome was seen; a row is one data set (a bootstrap draw).
        ridge: Strength of the Gaussian prior around 0, > 0.
        offset: Added to the utilities.
        start: First guess, 0 if not given.

    Returns:
        The optimum of each row.

    Raises:
        ArithmeticError: The gradient is not 0 where the search ended.
    """
    shape = (len(counts), features.shape[2])
    found = np.zeros(shape) if start is None else np.broadcast_to(start, shape).copy()
    limit = 1e-9 * (1 + counts.sum(axis=(1, 2)))
    now = derivatives(features, counts, found, ridge, offset)
    for _ in range(_ITERATIONS):
        if (np.abs(now.gradient).max(axis=1, initial=0) <= limit).all():
            return found
        step = np.linalg.solve(now.information, now.gradient[..., None])[..., 0]
        slope = (step * now.gradient).sum(axis=1)
        scale = np.ones(len(counts))
        for _ in range(40):  # halve the steps that overshoot; rounding may cost a last digit
            ahead = derivatives(features, counts, found + scale[:, None] * step, ridge, offset)
            slack = 1e-12 * (1 + np.abs(now.value))
            worse = ahead.value < now.value + 1e-4 * scale * slope - slack
            if not worse.any():
                break
            scale[worse] /= 2
        found, now = found + scale[:, None] * step, ahead
    worst = float((np.abs(now.gradient).max(axis=1) / limit).max())
    if worst > 100:
        raise ArithmeticError(f"the gradient is 0 at an optimum, found {worst * 1e-9:.1e} a pair")
    return found


def sandwich(
    scores: Float[np.ndarray, "prompt parameter"],
    information: Float[np.ndarray, "parameter parameter"],
) -> Float[np.ndarray, "parameter parameter"]:
    """Covariance of a fit when prompts, not comparisons, are independent.

    Args:
        scores: Each prompt's share of the log-likelihood's gradient at the optimum.
        information: Negative Hessian of the penalised log-likelihood there.

    References:
        White 1982, Maximum likelihood estimation of misspecified models; Liang and Zeger 1986
        for clusters, with the P / (P - 1) correction.
    """
    centred = scores - scores.mean(axis=0)
    many = len(scores)
    bread = np.linalg.inv(information)
    covariance: Float[np.ndarray, "parameter parameter"] = (
        bread @ (centred.T @ centred * (many / (many - 1))) @ bread
    )
    return covariance


class Profile:
    """Likelihood of one linear function of the parameters, all else at its best."""

    def __init__(
        self,
        features: Float[np.ndarray, "cell outcome parameter"],
        counts: Float[np.ndarray, "cell outcome"],
        function: Float[np.ndarray, " parameter"],
    ) -> None:
        self._features, self._counts, self._function = features, counts[None], function
        self._rest = linalg.null_space(function[None])
        self._inner = features @ self._rest
        best = fit(features, self._counts, ridge=_TINY_RIDGE)
        self._best = float(derivatives(features, self._counts, best, 0.0).value[0])
        self.start = float(best[0] @ function)
        self._last = best @ self._rest

    def deviance(self, value: float) -> float:
        """Twice the log-likelihood lost by holding the function at ``value``."""
        fixed = value * self._function / (self._function @ self._function)
        offset = self._features @ fixed
        inner = fit(self._inner, self._counts, ridge=_TINY_RIDGE, offset=offset, start=self._last)
        self._last = inner
        value_here = derivatives(self._inner, self._counts, inner, 0.0, offset).value[0]
        return max(0.0, 2 * (self._best - float(value_here)))

    def end(self, side: int, threshold: float) -> float:
        """Where the deviance passes the threshold, going down (-1) or up (+1) from the best."""
        inside, step = self.start, 1.0
        while True:
            outside = inside + side * step
            if self.deviance(outside) > threshold:
                break
            inside, step = outside, 2 * step
            if abs(outside - self.start) > 4 * _FAR:
                return side * np.inf
        root = optimize.brentq(lambda v: self.deviance(v) - threshold, inside, outside, xtol=1e-5)
        return float(root)


class Recession:
    """Directions along which the likelihood never falls: there the data give no number."""

    def __init__(
        self,
        features: Float[np.ndarray, "cell outcome parameter"],
        counts: Float[np.ndarray, "cell outcome"],
    ) -> None:
        gains = features[:, :, None, :] - features[:, None, :, :]  # an outcome over another
        rows = gains[counts > 0].reshape(-1, features.shape[2])
        self._rows = np.unique(rows[np.abs(rows).any(axis=1)], axis=0)
        self.exists = self._most(self._rows.sum(axis=0)) > 1e-7

    def unbounded(self, function: Float[np.ndarray, " parameter"]) -> tuple[bool, bool]:
        """Whether the function may go (down, up) for ever at no cost in likelihood."""
        if not self.exists:
            return False, False
        return self._most(-function) > 1e-7, self._most(function) > 1e-7

    def _most(self, function: Float[np.ndarray, " parameter"]) -> float:
        found = optimize.linprog(
            -function, A_ub=-self._rows, b_ub=np.zeros(len(self._rows)), bounds=(-1, 1)
        )
        if not found.success:
            raise ArithmeticError(f"a bounded linear programme has a solution: {found.message}")
        best: float = found.fun or 0.0
        return -best
