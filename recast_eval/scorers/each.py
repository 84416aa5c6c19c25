"""Scorers that look at one image at a time: a batch is single calls, by construction."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import Scorer, ScorerCard

log = logging.getLogger(__name__)

NOT_APPLICABLE: Final = "not_applicable"
"""Reason of a ``Failed`` outcome when the prompt asks for nothing that the scorer reads.

It is no fault: it is left out of the count of what could not be scored.
"""


def check_batch(images: Sequence[np.ndarray], prompts: Sequence[str]) -> None:
    """Refuse a batch that would be scored crosswise.

    Raises:
        ValueError: Lengths differ, or an image is not uint8 (H, W, 3).
    """
    if len(images) != len(prompts):
        raise ValueError(f"{len(images)} images against {len(prompts)} prompts: one each")
    for i, image in enumerate(images):
        if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3:
            raise ValueError(f"images[{i}] must be a uint8 array (H, W, 3)")
        if image.shape[2] != 3 or 0 in image.shape:
            raise ValueError(f"images[{i}] must be uint8 (H, W, 3), got shape {image.shape}")


def with_revision(card: ScorerCard, sha256: str) -> ScorerCard:
    """The card of loaded weights: other bytes are another scorer."""
    return replace(card, revision=sha256[:16])


class EachScorer:
    """A scorer made of a function of one image and its prompt."""

    def __init__(
        self, card: ScorerCard, score: Callable[[np.ndarray, str], Scored | Failed]
    ) -> None:
        self.card, self._score = card, score

    def __call__(
        self, images: Sequence[np.ndarray], prompts: Sequence[str]
    ) -> list[Scored | Failed]:
        """See ``Scorer``."""
        check_batch(images, prompts)
        return [self._score(i, p) for i, p in zip(images, prompts, strict=True)]


def score_apart(
    scorer: Scorer, images: Sequence[np.ndarray], prompts: Sequence[str]
) -> list[Scored | Failed]:
    """Score a batch; if the scorer breaks on it, one by one, so that one image fails alone."""
    if not images:
        return []
    try:
        outcomes = list(scorer(images, prompts))
        if len(outcomes) != len(images):
            raise ValueError(f"{len(outcomes)} outcomes for {len(images)} images")
    except Exception as error:
        if len(images) > 1:
            pairs = zip(images, prompts, strict=True)
            return [score_apart(scorer, [i], [p])[0] for i, p in pairs]
        name = scorer.card.name
        log.warning("%s failed on an image: %s: %s", name, type(error).__name__, error)
        return [Failed(reason="scorer_error", detail=f"{type(error).__name__}: {error}"[:500])]
    return outcomes
