"""Cross-fitting: a lower bound from features of x_t alone, without any completion."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from recast_train.credit.estimators.base import (
    Array,
    Estimate,
    Samples,
    Sums,
    center,
    collect,
    from_parts,
    prompt_index,
    prompt_weights,
)

_RIDGES = 10.0 ** np.arange(-5.0, 3.0)
"""Penalties tried, times the number of samples: standardised features make them unitless."""
_POWERS = 5
"""Degree of the link from r(x_0 estimate) to E[r | x_t], which is no straight line."""


class Predictions(NamedTuple):
    """Held-out predictions, centred within prompts."""

    values: Array
    """(K, P, N); NaN where the reward failed."""
    targets: Array
    """(K, N) rewards, centred alike."""
    prompts: npt.NDArray[np.intp]
    """(N,) integers from 0."""


def cross_fit(
    samples: Samples,
    *,
    replicates: int = 200,
    generator: np.random.Generator,
    folds: int = 4,
) -> Estimate:
    """Held-out bound ``E[2 r f - f^2] <= Var(E[r | x_t])``, tight iff f = E[r | x_t].

    f is a ridge regression on powers of every reward of the x_0 estimate, of the same after a
    few ODE steps, and on latent statistics, fitted on other prompts; r and f are centred within
    the prompt. Being held out, a useless feature lowers the bound and never raises it.

    Args:
        samples: With ``x0_rewards``, ``sharp_rewards`` or ``features``.
        replicates: Bootstrap draws over prompts, with f as fitted.
        generator: Draws folds and bootstrap.
        folds: Parts of whole prompts; one a prompt if there are fewer prompts.

    Returns:
        Biased downwards where the features miss something (a blurred estimate has no legible
        letter), never upwards: see ``corrected``.

    Raises:
        ValueError: There are no features, or fewer than two prompts.
    """
    found = predict(samples, folds=folds, generator=generator)
    return from_parts(
        "cross-fit",
        samples,
        [bound_sums(found)],
        weights=prompt_weights(samples, replicates, generator),
    )


def bound_sums(found: Predictions) -> Sums:
    """(C, K, P) per-prompt sums of ``2 r f - f^2``."""
    f = found.values
    return collect(2.0 * found.targets[:, None] * f - f * f, found.prompts)


def residual_sums(found: Predictions, completions: Array) -> Sums:
    """(C, K, P) per-prompt sums of ``(r - f)(r' - f)``, whose mean is ``E[(m - f)^2]``.

    Args:
        found: Held-out predictions.
        completions: (P, K, N) rewards of completions of the same x_t.
    """
    other = center(np.moveaxis(completions, 0, 1), found.prompts)
    return collect((found.targets[:, None] - found.values) * (other - found.values), found.prompts)


def predict(samples: Samples, *, folds: int, generator: np.random.Generator) -> Predictions:
    """Fit on all folds but one, predict that one, for every reward and noise level.

    Folds are whole prompts: parts of one prompt would be centred apart, and with as many
    parts as images nothing would be left of it.

    Raises:
        ValueError: There is nothing to predict from, or fewer than two folds or prompts.
    """
    if not samples.predictable:
        raise ValueError("cross-fitting needs x0_rewards or features, got neither")
    if folds < 2:
        raise ValueError(f"folds must be >= 2, got {folds}")
    prompts = prompt_index(samples.prompts)
    count = int(prompts.max()) + 1
    if count < 2:
        raise ValueError(f"cross-fitting needs 2 prompts or more, got {count}")
    part = generator.permutation(np.arange(count) % min(folds, count))[prompts]
    targets = center(samples.rewards, prompts)
    values = np.full((len(targets), len(samples.sigmas), len(prompts)), np.nan)
    for p in range(len(samples.sigmas)):
        design = center(_design(samples, p).T, prompts).T
        for rows in _alike(~np.isnan(targets)):
            there = np.flatnonzero(~np.isnan(targets[rows[0]]))
            if len(there):
                mine = targets[rows][:, there].T
                values[rows[:, None], p, there] = _held_out(design[there], mine, part[there]).T
    return Predictions(center(values, prompts), targets, prompts)


def _design(samples: Samples, p: int) -> Array:
    """(N, F) functions of x_t at one noise level; a failed estimate counts as its mean."""
    columns: list[Array] = []
    for guess in (samples.x0_rewards, samples.sharp_rewards):
        if guess is not None:
            unit = _bounded(guess[p])
            columns += [unit.T**power for power in range(1, _POWERS + 1)]
    if samples.features is not None:
        columns.append(_robust(samples.features[p]))
    return np.concatenate(columns, axis=1)


def _bounded(rewards: Array) -> Array:
    """(K, N) in units of its deviation, a failed one in the middle."""
    there = ~np.isnan(rewards)
    filled = np.where(there, rewards, 0.0)
    mean = filled.sum(1, keepdims=True) / np.maximum(there.sum(1, keepdims=True), 1)
    off = np.where(there, rewards - mean, 0.0)
    scale = np.sqrt((off**2).mean(axis=1, keepdims=True))
    unit = np.divide(off, scale, out=np.zeros_like(off), where=scale > 0)
    out: Array = np.clip(unit, -4.0, 4.0)  # a fifth power of an outlier would own the fit
    return out


def _robust(features: Array) -> Array:
    """(N, F) in units of the median deviation: one odd prompt must not set a scale or stick out."""
    off = np.nan_to_num(features - np.nanmedian(features, axis=0))
    scale = np.median(np.abs(off), axis=0) * 1.4826
    scale = np.where(scale > 0, scale, off.std(axis=0))
    unit = np.divide(off, scale, out=np.zeros_like(off), where=scale > 0)
    out: Array = np.clip(unit, -3.0, 3.0)
    return out


def _alike(there: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.intp]]:
    """Rows with the same failures share one factorisation."""
    found: dict[bytes, list[int]] = {}
    for k, row in enumerate(there):
        found.setdefault(row.tobytes(), []).append(k)
    return [np.array(rows) for rows in found.values()]


def _held_out(x: Array, y: Array, part: npt.NDArray[np.intp]) -> Array:
    """(N, K) predictions of each fold from the others, the penalty chosen per fold and target.

    A fold's penalty is the one that predicts the other folds best out of fold, so that none
    chooses by its own rewards. Generalised cross-validation would not do: with as many
    features as samples it undersmooths, and one wild prediction ruins a bound.
    """
    folds = np.unique(part)
    every = np.zeros((len(_RIDGES) + 1, *y.shape))  # the last predicts nothing, and is right to
    scores = np.zeros((len(folds), len(_RIDGES) + 1, y.shape[1]))
    for i, fold in enumerate(folds):
        held, kept = part == fold, part != fold
        if kept.any():
            every[:-1, held] = np.einsum("nf,rfk->rnk", x[held], _ridge(x[kept], y[kept]))
            # The conditional mean lies in the range of what it is a mean of.
            every[:, held] = np.clip(every[:, held], y[kept].min(0), y[kept].max(0))
        f = every[:, held]
        scores[i] = (2.0 * y[held] * f - f * f).sum(axis=1)
    total = scores.sum(axis=0)
    out = np.empty_like(y)
    for i, fold in enumerate(folds):
        best = (total - scores[i] if len(folds) > 1 else total).argmax(axis=0)
        held = np.flatnonzero(part == fold)
        out[held] = every[best, held[:, None], np.arange(y.shape[1])]
    return out


def _ridge(x: Array, y: Array) -> Array:
    """(R, F, K) coefficients for each penalty, from one eigendecomposition."""
    scale = np.sqrt((x**2).mean(axis=0))
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 1e-12)
    unit = x * inverse
    values, vectors = np.linalg.eigh(unit.T @ unit)
    moment = vectors.T @ (unit.T @ y)
    shrunk = 1.0 / (np.maximum(values, 0.0) + _RIDGES[:, None] * len(x))
    out: Array = inverse[:, None] * (vectors @ (shrunk[:, :, None] * moment))
    return out
