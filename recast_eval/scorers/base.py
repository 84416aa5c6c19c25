"""What a scorer is. A *reward* is a scorer used in training, a *judge* one held out."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, Protocol

import numpy as np

from recast_eval.records import Failed, Scored, digest
from recast_eval.scorers.needed import Needed


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerCard:
    """All that a reader must know to use a number of this scorer."""

    name: str
    version: int
    family: str
    """Lineage of its weights or rule. A judge that shares it with a reward is not held out."""
    what: str
    """One sentence: what a high value means."""
    unit: str
    raw_direction: Literal["higher", "lower"] = "higher"
    """Direction of the underlying number; the value is always turned so that higher is better."""
    low: float | None = None
    high: float | None = None
    """Range of the value; None is unbounded."""
    text_limit: int | None = None
    """Tokens of the prompt that are read; None reads all (or no text at all)."""
    needs: tuple[str, ...] = ()
    """Packages beyond the core, and weights, in words that ``doctor`` can print."""
    source: str = ""
    licence: str = ""
    weights: str = ""
    """Hub id or shipped file."""
    revision: str = ""
    preprocessing: str = ""

    def digest(self) -> str:
        """Name this scorer by its content."""
        return digest(asdict(self))


class Scorer(Protocol):
    """Scores images against prompts, in order, one outcome each."""

    card: ScorerCard

    def __call__(
        self, images: Sequence[np.ndarray], prompts: Sequence[str]
    ) -> list[Scored | Failed]:
        """Score a batch.

        Args:
            images: uint8 RGB arrays (H, W, 3), sizes may differ.
            prompts: The bare prompt of each image.

        Returns:
            One outcome an image, in order. A batch gives what single calls give.
        """
        ...


class ScorerFactory(Protocol):
    """Builds a scorer; heavy imports and weights are loaded here, not at import."""

    def __call__(self, *, device: str = "cpu", weights: str | None = None) -> Scorer:
        """Load it.

        Args:
            device: Where a model runs.
            weights: Folder or hub id to use instead of the card's.

        Raises:
            MissingError: A package or the weights are not here; says how to get them.
        """
        ...


@dataclass(frozen=True, slots=True)
class ScorerSpec:
    """What a file of ``recast_eval/scorers/models/`` calls ``SPEC``."""

    card: ScorerCard
    build: ScorerFactory
    served: bool = False
    """Whether it asks a server, so that no weights are looked for here."""
    parts: tuple[Needed, ...] = ()
    """What its folder of weights must hold; empty where there is none, or its loader says it."""
