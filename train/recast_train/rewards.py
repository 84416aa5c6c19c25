"""The edge to the scorers: images in, a matrix of values out, failures kept apart."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from recast_eval.records import Failed, MetricRecord, Scored
from recast_eval.scorers import Scorer, ScorerSpec
from recast_eval.scorers.each import NOT_APPLICABLE
from recast_train.recipe_types import RewardConfig

_LONGEST: Final = 200
"""Characters of a failure's reason that a message quotes."""


@dataclass(frozen=True, slots=True)
class RewardTable:
    """K rewards of N images."""

    names: tuple[str, ...]
    values: np.ndarray
    """(K, N) float64, higher is better; NaN where a reward failed, in memory alone."""
    applicable: np.ndarray
    """(K, N) bool, see ``Scores``."""
    reasons: tuple[str, ...]
    """(K,) see ``Scores``; of this process's images."""

    @property
    def failed(self) -> dict[str, tuple[int, int]]:
        """Reward -> (failures, images that it applies to), where there is a failure."""
        lost = (np.isnan(self.values) & self.applicable).sum(axis=1).tolist()
        asked = self.applicable.sum(axis=1).tolist()
        pairs = zip(self.names, lost, asked, strict=True)
        return {name: (n, total) for name, n, total in pairs if n}

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
    reasons: tuple[str, ...]
    """(K,) why the first failure of each; empty where nothing failed."""

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
    reasons = [""] * len(scorers)
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
                if applicable[row, column]:
                    reasons[row] = reasons[row] or _why(outcome)
    return Scores(values, applicable, tuple(reasons))


def _why(failed: Failed) -> str:
    text = ": ".join(filter(None, (failed.reason, failed.detail)))
    return " ".join(text.split())[:_LONGEST]


def tell_apart(
    table: RewardTable, groups: np.ndarray, wanted: np.ndarray, *, together: bool
) -> bool:
    """Whether any two images of a group have rewards that can be compared.

    Args:
        table: Of an epoch.
        groups: (N,) who is compared with whom.
        wanted: (K,) bool, rewards that have a budget.
        together: Whether an image counts only with all of its rewards, as raw mixtures do.
    """
    there = ~np.isnan(table.values[wanted])
    usable = there.all(axis=0, keepdims=True) if together else there
    index = np.unique(groups, return_inverse=True)[1]
    return any(bool((np.bincount(index[row]) > 1).any()) for row in usable)


def silences(table: RewardTable) -> Iterator[tuple[str, str]]:
    """Rewards that say less than they should, and the sentence for it; none if all is well."""
    total = table.values.shape[1]
    for name, reason in zip(table.names, table.reasons, strict=True):
        failed, asked = table.failed.get(name, (0, total))
        why = f" ({reason})" if reason else ""
        if failed and failed == asked:
            yield name, f"{name} could score none of {asked} images{why}: it trains nothing"
        elif failed:
            yield name, f"{name} could not score {failed} of {asked} images{why}"
        elif name not in table.means:
            yield name, f"{name} applies to none of these {total} images: it trains nothing"


def unscored(records: Iterable[MetricRecord]) -> list[str]:
    """What could not be scored in a whole run: a sentence a reward; none if all was.

    Args:
        records: Of a run, in order; each epoch's rewards stand in all of its records.
    """
    scored: dict[str, int] = {}
    failed: dict[str, int] = {}
    images, epoch = 0, -1
    for record in records:
        if record.epoch == epoch:
            continue
        epoch = record.epoch
        for name, (there, _) in record.scored.items():
            scored[name] = scored.get(name, 0) + there
            failed[name] = failed.get(name, 0) + int(record.values.get(f"failed/{name}", 0))
        images += max((total for _, total in record.scored.values()), default=0)
    lines = [
        f"{name} could not be scored for {lost} of {lost + scored[name]} images"
        for name, lost in failed.items()
        if lost
    ]
    never = [name for name, there in scored.items() if not there and not failed[name]]
    return lines + [f"{name} applied to none of the run's {images} images" for name in never]
