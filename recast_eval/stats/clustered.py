"""Errors of a fitted choice model when prompts are independent and the images of one are not.

The usual cluster-robust ("sandwich") error counts all prompts, whoever they are about. At the
optimum the residuals of the few prompts behind one contrast add up to 0 by themselves, so the
error of a contrast that two prompts of sixty carry is far too small, and may be 0. Here each
contrast is judged by its own prompts: their squared residuals are scaled up by what the fit took
from them, and Student's t has the degrees of freedom that they leave.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import sparse

from recast_eval.stats.choice import probabilities

_GONE = 1e-9
"""Share of a prompt's variance below which the fit has taken all of it."""


class Spread(NamedTuple):
    """What prompts say about the error of one linear function."""

    robust: float
    """Variance from the differences between prompts."""
    independent: float
    """Variance, were all comparisons independent."""
    freedom: float
    """Degrees of freedom of ``robust``, at least 1: prompts - 1 if all carry alike."""


class Clustered:
    """Variance and degrees of freedom of linear functions of a fit, by prompt."""

    def __init__(
        self,
        features: Float[np.ndarray, "cell outcome parameter"],
        totals: Float[np.ndarray, "prompt cell"] | sparse.sparray,
        scores: Float[np.ndarray, "prompt parameter"],
        at: Float[np.ndarray, " parameter"],
        null: Float[np.ndarray, "direction parameter"] | None = None,
    ) -> None:
        """Prepare.

        Args:
            features: What each outcome's utility adds up from.
            totals: Comparisons of each prompt in each cell.
            scores: Each prompt's share of the log-likelihood's gradient at ``at``.
            at: Where the fit stands.
            null: Directions that no utility difference sees, such as all ratings up by one.
        """
        self._features, self._totals = features, totals
        self._chances = probabilities(features, at[None])[0]
        units = np.eye(features.shape[2])
        whole = np.stack([self._informed(unit).sum(axis=0) for unit in units])
        filled = whole if null is None else whole + null.T @ null
        self._bread = np.linalg.pinv(filled, rcond=1e-14, hermitian=True)
        # A ridge leaves a gradient; a step to where there is none leaves the prompts' own part.
        self._scores = scores - self._informed(self._bread @ scores.sum(axis=0))

    def _informed(
        self, direction: Float[np.ndarray, " parameter"]
    ) -> Float[np.ndarray, "prompt parameter"]:
        """Each prompt's information matrix times the direction."""
        utility = self._features @ direction
        mean = (self._chances * utility).sum(axis=1, keepdims=True)
        weighted = self._chances * (utility - mean)
        by_cell = (weighted[:, None, :] @ self._features)[:, 0]
        found: Float[np.ndarray, "prompt parameter"] = self._totals @ by_cell
        return found

    def spread(self, function: Float[np.ndarray, " parameter"]) -> Spread:
        """Variances of the function's estimate, and how well the robust one is known.

        The squared residual of each prompt is divided by the share of its expectation that the
        fit leaves, so that the sum is unbiased if comparisons are independent, and the degrees
        of freedom are those of a chi-square with the same mean and variance. With P prompts that
        carry alike these are the factor P / (P - 1) and P - 1.

        References:
            Bell and McCaffrey 2002, Bias reduction in standard errors for linear regression with
            multi-stage samples; Imbens and Kolesar 2016, Robust standard errors in small
            samples. Here the correction is of the contrast's own residuals.
        """
        along = self._bread @ function
        informed = self._informed(along)
        own = informed @ along
        taken = ((informed @ self._bread) * informed).sum(axis=1)
        left = own - taken
        kept: Bool[np.ndarray, " prompt"] = left > _GONE * max(own.sum(), 1e-300)
        factor = np.where(kept, own / np.where(kept, left, 1.0), 0.0)
        moved = self._scores @ along
        cross = (informed * factor[:, None]).T @ informed @ self._bread
        square = (factor**2 * (own**2 - 2 * own * taken)).sum() + np.trace(cross @ cross)
        total = (factor * left).sum()
        freedom = total**2 / square if square > 0 else 1.0
        robust = float((factor * moved**2).sum())
        return Spread(robust, float(own.sum()), max(1.0, float(freedom)))
