"""Schema of a review: the key that stays here, the ballot that comes back."""

from typing import Literal

from pydantic import Field

from recast_eval.records import Record


class KeyedPair(Record):
    """What stood on either side of one pair of a page."""

    prompt_id: str
    sample: int
    left: str
    """Model id."""
    right: str


class ReviewKey(Record):
    """``review/PAGE.key.json``: what the page itself does not tell."""

    schema_version: Literal[1] = 1
    page: str
    axis: str
    pairs: dict[str, KeyedPair]
    """Id in the page -> what was shown."""


class BallotVote(Record):
    """One choice."""

    pair: str = Field(max_length=64)
    choice: Literal["left", "right", "tie"]
    seconds: float | None = Field(default=None, ge=0)


class Ballot(Record):
    """What the page exports."""

    schema_version: Literal[1] = 1
    page: str = Field(max_length=64)
    voter: str = Field(min_length=1, max_length=80)
    votes: list[BallotVote]
