"""What a scorer in another process is asked and answers: JSON over HTTP, images as PNG.

    GET  /health -> Health            POST /score  ScoreRequest -> ScoreResponse
    429 with Retry-After: the queue is full; 422: the request is not of this form; 411, 413: its
    length is not said, or is more than MAX_BODY.

The server may live in an environment of its own, with whatever versions the scorer's package
pins: these few lines are all that both sides must agree on (docs/scorers.md).
"""

import base64
import io
from typing import Annotated, Any, Literal

import numpy as np
from PIL import Image
from pydantic import Field

from recast_eval.records import Outcome, Record

MAX_ITEMS = 256
MAX_IMAGE_CHARS = 64 * 2**20
MAX_BODY = 256 * 2**20
"""Bytes of a request; a client sends pictures in parts of at most half of it, or one alone."""


class WireItem(Record):
    """One image and its prompt; ``id`` comes back with the answer."""

    id: str
    prompt: str
    png: Annotated[str, Field(max_length=MAX_IMAGE_CHARS)]
    """Base64 of a PNG file."""


class ScoreRequest(Record):
    """Some items; a scorer never mixes the items of two requests up."""

    schema_version: Literal[1] = 1
    items: Annotated[list[WireItem], Field(max_length=MAX_ITEMS)]


class WireResult(Record):
    """The outcome of the item with this id."""

    id: str
    outcome: Outcome


class ScoreResponse(Record):
    """A result for each item asked, in the order asked."""

    schema_version: Literal[1] = 1
    digest: str
    """Of the scorer's card, so that a client notices a scorer that changed under it."""
    results: list[WireResult]


class Health(Record):
    """Who answers here."""

    schema_version: Literal[1] = 1
    name: str
    digest: str
    card: dict[str, Any]
    waiting: int
    """Requests in the queue."""


def to_png(pixels: np.ndarray) -> str:
    """Base64 PNG of a uint8 RGB array (H, W, 3); lossless."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
