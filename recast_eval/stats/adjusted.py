"""The win rate that would be left if both images had the same brightness, size, and so on."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy import special, stats

from recast_eval.stats.checks import Ids, cluster_means, clusters, finite, fraction, outcomes
from recast_eval.stats.choice import derivatives, fit, probabilities, sandwich
from recast_eval.stats.intervals import Interval, Undefined, t_critical

_RIDGE = 0.01


@dataclass(frozen=True, slots=True)
class Slope:
    """What a difference in one image property does to the odds of winning."""

    name: str
    log_odds: Interval
    """Per standard deviation of the difference, with the other properties held."""
    p: float


@dataclass(frozen=True, slots=True)
class AdjustedWinRate:
    """Shown beside the raw win rate, never instead of it."""

    raw: float
    adjusted: Interval
    """Win rate in [0, 1] predicted for a pair of images with equal properties."""
    slopes: tuple[Slope, ...]
    constant: tuple[str, ...]
    """Properties left out because no pair differs from another in them."""
    n_pairs: int
    n_prompts: int


def adjusted_win_rate(
    scores: ArrayLike,
    prompts: Ids,
    covariates: Mapping[str, ArrayLike],
    *,
    level: float = 0.95,
) -> AdjustedWinRate | Undefined:
    """Fit the odds of winning on differences of image properties, and predict at no difference.

    Args:
        scores: 1, 0.5 or 0 a pair; a tie counts as half a win.
        prompts: The prompt id of each pair; prompts weigh alike and are the unit of the errors.
        covariates: Property -> its value in the first image minus that in the second, a pair
            each, such as log megapixels.
        level: Coverage, in (0, 1).

    Returns:
        The adjusted rate and each property's slope, or ``Undefined`` where there are too few
        prompts for the properties or all scores are equal.

    Raises:
        ValueError: No pairs, lengths differ, or a value is not finite.

    References:
        Dubois et al. 2024, Length-controlled AlpacaEval, arXiv 2404.04475: the same idea, there
        with text length; Papke and Wooldridge 1996 for halves in a logit.
    """
    won, level = outcomes(scores), fraction(level, "level")
    codes = clusters(prompts, len(won))
    names, columns, constant = [], [np.ones(len(won))], []
    for name, values in covariates.items():
        found = finite(values, f"values of {name}")
        if len(found) != len(won):
            raise ValueError(f"{name} has a value a pair, got {len(found)} for {len(won)}")
        spread = float(found.std())
        if spread <= 1e-12 * max(1.0, float(np.abs(found).max())):
            constant.append(name)
            continue
        names.append(name)
        columns.append(found / spread)
    many = int(codes.max()) + 1
    if np.ptp(won) == 0:
        return Undefined(f"all {len(won)} pairs are scored {won[0]:g}: no property can matter")
    if many < 10 * len(columns):
        return Undefined(f"{many} prompts are too few for {len(names)} properties: 10 for each")
    raw = float(cluster_means(won, codes).mean())
    weights = 1 / np.bincount(codes)[codes]
    features = np.zeros((len(won), 2, len(columns)))
    features[:, 0] = np.stack(columns, axis=1)
    counts = np.stack([won, 1 - won], axis=1) * weights[:, None]
    best = fit(features, counts[None], ridge=_RIDGE)[0]
    covariance = _covariance(features, counts, codes, best)
    errors = np.sqrt(np.diag(covariance))
    critical, odds = t_critical(level, many), float(best[0])
    ends = special.expit([odds, odds - critical * errors[0], odds + critical * errors[0]])
    slopes = tuple(
        Slope(
            name,
            Interval(float(b), float(b - critical * e), float(b + critical * e)),
            float(2 * stats.t.sf(abs(b) / e, many - 1)),
        )
        for name, b, e in zip(names, best[1:], errors[1:], strict=True)
    )
    adjusted = Interval(*(float(end) for end in ends))
    return AdjustedWinRate(raw, adjusted, slopes, tuple(constant), len(won), many)


def _covariance(
    features: Float[np.ndarray, "pair outcome parameter"],
    counts: Float[np.ndarray, "pair outcome"],
    codes: Int[np.ndarray, " pair"],
    best: Float[np.ndarray, " parameter"],
) -> Float[np.ndarray, "parameter parameter"]:
    """Cluster-robust covariance; each pair is a cell of its own."""
    chances = probabilities(features, best[None])[0]
    residuals = counts - counts.sum(axis=1, keepdims=True) * chances
    own = np.einsum("po,pok->pk", residuals, features)
    scores = np.zeros((int(codes.max()) + 1, features.shape[2]))
    np.add.at(scores, codes, own)
    information = derivatives(features, counts[None], best[None], _RIDGE).information[0]
    return sandwich(scores, information)
