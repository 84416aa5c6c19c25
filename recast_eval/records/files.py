"""Schemas of the files that outlive a command: checkpoints, images, scores, metrics, credit."""

from typing import Any, Literal

from pydantic import Field

from recast_eval.records.base import Outcome, Record


class CheckpointCard(Record):
    """``checkpoint.json``: written last, so that a checkpoint is whole or absent."""

    schema_version: Literal[1] = 1
    base_model: str
    """Name (``starter``), folder or hub id that the adapter belongs to."""
    policy: str
    """Which policy class draws with it: ``sd3`` or ``masked``."""
    step: int
    recipe_name: str
    recipe_digest: str
    rewards: dict[str, str]
    """Training reward -> model family; a judge of the same family is not held out."""
    heldout: list[str] = Field(default_factory=list)
    """Judges that the recipe promised not to train on."""
    allow_shared_family: str = ""
    """Why one of them may share a family with a reward all the same; empty: none does."""
    sampler: dict[str, Any] = Field(default_factory=dict)
    """Steps, guidance, resolution ... that the policy was trained with."""
    files: dict[str, str]
    """Relative path -> SHA-256 of every other file of the checkpoint."""


class ImageRecord(Record):
    """A line of ``metadata.jsonl`` in an image folder; three fields are enough to read one."""

    schema_version: Literal[1] = 1
    file_name: str = Field(min_length=1)
    prompt: str = Field(min_length=1)
    prompt_id: str = Field(min_length=1, max_length=200)
    sample: int = Field(0, ge=0)
    """Which image of this prompt, from 0."""
    seed: int | None = None
    sha256: str | None = None
    """Of the file's bytes; checked when present."""
    category: str | None = None


class ScoreRecord(Record):
    """One scorer's outcome for one image."""

    schema_version: Literal[1] = 1
    model: str
    prompt_id: str
    sample: int
    image: str
    """SHA-256 of the image file."""
    scorer: str
    scorer_digest: str
    role: Literal["train", "heldout"]
    outcome: Outcome


class MetricRecord(Record):
    """A line of ``metrics.jsonl``: one optimiser step (an epoch may have several)."""

    schema_version: Literal[1] = 1
    step: int
    epoch: int
    seconds: float
    """Since the epoch began."""
    values: dict[str, float]
    """Flat numbers: ``reward/NAME``, ``loss``, ``kl``, ``grad_norm``, ..."""
    scored: dict[str, list[int]] = Field(default_factory=dict)
    """Reward -> [n_scored, n_total] behind ``reward/NAME``."""


class CreditRecord(Record):
    """A line of ``credit.jsonl``: W whenever it was set, and what it was solved from."""

    schema_version: Literal[1] = 1
    epoch: int
    kind: str
    """Which credit made it: ``static``, ``recast``, ``recast-online``, ..."""
    rewards: list[str]
    budgets: list[float]
    sigmas: list[float]
    """(T+1,) scheduler order: noise first."""
    weights: list[list[float]]
    """(K, T), rows sum to the budgets, columns to the column mass."""
    column_mass: list[float] | None = None
    curves: list[list[float]] | None = None
    """(K, T+1) discriminability used, isotonic."""
    curve_errors: list[list[float]] | None = None
    """(K, T+1) standard errors, bootstrap over prompts."""
    raw_curves: dict[str, list[list[float]]] = Field(default_factory=dict)
    """Estimator name -> (K, T+1) curve before pooling, for the report's comparison."""
    gains: list[list[float]] | None = None
    reliability: list[float] | None = None
    digest: str = ""
