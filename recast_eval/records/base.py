"""Records: frozen, strict, one JSON object a line, a schema version in each."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    """Base of all that is written: unknown keys and NaN are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Scored(Record):
    """There is a value."""

    kind: Literal["scored"] = "scored"
    value: float
    """In the scorer's unit; higher is better."""
    truncated: bool = False
    """The prompt was longer than the scorer reads."""
    detail: dict[str, Any] = Field(default_factory=dict)
    """JSON facts behind the value (text read, parts found); never used in a mean."""


class Failed(Record):
    """There is none, and why. Counted and shown, never averaged in."""

    kind: Literal["failed"] = "failed"
    reason: str
    detail: str = ""


Outcome = Annotated[Scored | Failed, Field(discriminator="kind")]


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no spaces, strict numbers."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any, length: int = 16) -> str:
    """First ``length`` hex digits of the SHA-256 of a JSON value's canonical text."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
