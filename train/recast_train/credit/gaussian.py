"""A policy whose curves are known: independent Gaussian coordinates, one reward on each.

``x_0 = u ~ N(0, s^2)``, ``x_t = (1 - t) u + t noise``, ``r = Phi(c u)``. With
``R_t = s^2 (1-t)^2 / (s^2 (1-t)^2 + t^2)`` and ``q = c^2 s^2 / (1 + c^2 s^2)``,
``E[r | x_t] = Phi(c mu_t / sqrt(1 + c^2 v_t))`` and
``Var(E[r | x_t]) = arcsin(q R_t) / (2 pi)``: a large ``s`` is a coarse feature, decided while
there is much noise, a small one a fine detail. Tests, figures and studies share it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from recast_train.credit.estimators.base import Samples

Array = npt.NDArray[np.float64]


class Coordinate(NamedTuple):
    """One coordinate and the reward that looks at it."""

    spread: float
    """s, standard deviation of u; coarse if large."""
    slope: float
    """c of ``r = Phi(c u)``; the reward's variance grows with ``c s``."""


COARSE, MIDDLE, FINE = Coordinate(3.0, 2.0), Coordinate(1.0, 4.0), Coordinate(0.25, 16.0)


def shifted_sigmas(steps: int, shift: float = 3.0) -> Array:
    """(T+1,) noise levels from 1 to 0 with SD3's time shift."""
    u = np.linspace(1.0, 0.0, steps + 1)
    out: Array = shift * u / (1.0 + (shift - 1.0) * u)
    return out


def exact_information(sigmas: npt.ArrayLike, coordinate: Coordinate) -> Array:
    """ICC at each noise level, in closed form.

    Args:
        sigmas: (P,) in [0, 1].
        coordinate: s and c.
    """
    t = np.asarray(sigmas, dtype=np.float64)
    s, c = coordinate
    q = (c * s) ** 2 / (1.0 + (c * s) ** 2)
    signal = (s * (1.0 - t)) ** 2
    out: Array = np.arcsin(q * signal / (signal + t**2)) / np.arcsin(q)
    return out


def exact_variance(coordinate: Coordinate) -> float:
    """Variance of the reward; its mean is 1/2."""
    s, c = coordinate
    return float(np.arcsin((c * s) ** 2 / (1.0 + (c * s) ** 2)) / (2.0 * np.pi))


def draw(
    coordinates: Sequence[Coordinate],
    sigmas: npt.ArrayLike,
    *,
    prompts: int,
    images: int,
    generator: np.random.Generator,
) -> Samples:
    """Rollouts of the exact policy, all that any estimator asks for, the same noise throughout.

    Args:
        coordinates: K, a reward each.
        sigmas: (P,) probed noise levels.
        prompts: Number of prompts; all alike here.
        images: Samples of each.
        generator: Draws everything.
    """
    levels = np.asarray(sigmas, dtype=np.float64)[:, None, None]
    shape = (len(coordinates), prompts * images)
    s, c = np.array(coordinates).T[:, :, None]
    u, noise = s * generator.standard_normal(shape), generator.standard_normal(shape)
    x_t = (1.0 - levels) * u + levels * noise
    total = (s * (1.0 - levels)) ** 2 + levels**2
    mean, variance = s * s * (1.0 - levels) * x_t / total, (s * levels) ** 2 / total
    other = mean + np.sqrt(variance) * generator.standard_normal(x_t.shape)
    return Samples(
        rewards=norm.cdf(c * u),
        prompts=np.repeat(np.arange(prompts), images),
        sigmas=levels[:, 0, 0],
        x0_rewards=norm.cdf(c * mean),
        completions=norm.cdf(c * other),
    )
