"""The edge to the scorers: images in, a matrix of values out, failures kept apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recast_eval.records import Scored
from recast_eval.scorers import Scorer, ScorerSpec
from recast_eval.scorers.each import NOT_APPLICABLE
from recast_train.recipe_types import RewardConfig


@dataclass(frozen=True, slots=True)
class RewardTable:
    """K rewards of N images."""

    names: tuple[str, ...]
    values: np.ndarray
    """(K, N) float64, higher is better; NaN where a reward failed, in memory alone."""

    @property
    def counts(self) -> dict[str, list[int]]:
        """Reward -> [n_scored, n_total]."""
        scored = (~np.isnan(self.values)).sum(axis=1)
        return {n: [int(s), self.values.shape[1]] for n, s in zip(self.names, scored, strict=True)}

    @property
    def means(self) -> dict[str, float]:
        """Mean over what was scored; a reward that failed everywhere has none."""
        return {
            name: float(np.nanmean(row))
            for name, row in zip(self.names, self.values, strict=True)
            if not np.isnan(row).all()
        }


def build_scorers(
    specs: Mapping[str, ScorerSpec], rewards: Mapping[str, RewardConfig], device: str
) -> dict[str, Scorer]:
    """Load the rewards of a recipe, in its order.

    Raises:
        MissingError: A package or weights are not here.
    """
    return {
        name: spec.build(device=rewards[name].device or device, weights=rewards[name].weights)
        for name, spec in specs.items()
    }


@dataclass(frozen=True, slots=True)
class Scores:
    """K rewards of N images, and why there is none where there is none."""

    values: np.ndarray
    """(K, N) float64, NaN where there is none."""
    applicable: np.ndarray
    """(K, N) bool; False where the prompt asks for nothing that the reward reads: no failure."""

    @property
    def counts(self) -> list[list[int]]:
        """(K, 2) [n_scored, n_total]: the total leaves out what a reward does not apply to."""
        scored = (~np.isnan(self.values)).sum(axis=1)
        total = self.applicable.sum(axis=1)
        return [[int(s), int(t)] for s, t in zip(scored, total, strict=True)]


def score(
    scorers: Mapping[str, Scorer], images: Sequence[np.ndarray], prompts: Sequence[str]
) -> np.ndarray:
    """Every reward of every image, (K, N) float64; NaN where there is none. See ``score_each``."""
    return score_each(scorers, images, prompts).values


def score_each(
    scorers: Mapping[str, Scorer], images: Sequence[np.ndarray], prompts: Sequence[str]
) -> Scores:
    """Every reward of every image, with failures told from rewards that do not apply.

    Raises:
        ValueError: A scorer gave another number of outcomes than there are images.
    """
    values = np.full((len(scorers), len(images)), np.nan)
    applicable = np.ones(values.shape, dtype=bool)
    each = list(images)  # a scorer may ask whether there are any, which an array does not answer
    for row, (name, scorer) in enumerate(scorers.items()):
        outcomes = scorer(each, prompts)
        if len(outcomes) != len(images):
            raise ValueError(f"{name}: {len(outcomes)} outcomes for {len(images)} images")
        for column, outcome in enumerate(outcomes):
            if isinstance(outcome, Scored):
                values[row, column] = outcome.value
            else:
                applicable[row, column] = outcome.reason != NOT_APPLICABLE
    return Scores(values, applicable)
