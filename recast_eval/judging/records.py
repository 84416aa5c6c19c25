"""Schema of ``verdicts.jsonl``: one final record per judge, pair of images and repeat.

Everything speaks in model ids, never in slots: a line can be read without code.
"""

from typing import Literal

from pydantic import Field, model_validator

from recast_eval.records import Record

FailureKind = Literal[
    "empty",
    "no_verdict",
    "ambiguous",
    "out_of_range",
    "truncated",
    "refused",
    "content_filter",
    "transport",
    "image_error",
    "missing_image",
    "budget",
    "not_asked",
    "internal",
    "no_quorum",
    "no_score",
]
"""Why there is no verdict. The first six are what a reply can be; ``content_filter`` is the
endpoint's refusal; ``budget`` was not asked because the money cap was reached, ``not_asked``
because the run was stopped; ``internal`` is a fault of ours, logged with its traceback;
``no_quorum`` and ``no_score`` belong to juries."""


class Usage(Record):
    """Tokens and money, summed over attempts. ``None`` is unknown, which is not zero."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    image_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None


class AxisOutcome(Record):
    """What is known about a pair on one axis, both orders taken together."""

    state: Literal["win", "tie", "flip", "unscored"]
    winner: str | None = None
    """Model id; set exactly when ``state`` is ``win``."""
    score_a: float | None = Field(default=None, ge=0, le=1)
    """1: ``model_a`` wins; 0: ``model_b``; 0.5: tie or flip; None exactly when unscored."""
    one_tie: bool = False
    """A tie because one order said tie while the other named a winner."""
    no_majority: bool = False
    """A tie because no choice of a jury had more than half of the votes."""
    reason: FailureKind | None = None
    """Set exactly when unscored."""

    @model_validator(mode="after")
    def _consistent(self) -> "AxisOutcome":
        if (self.state == "win") != (self.winner is not None):
            raise ValueError(f"winner {self.winner!r} does not fit state {self.state!r}")
        if (self.state == "unscored") != (self.score_a is None):
            raise ValueError(f"score_a {self.score_a!r} does not fit state {self.state!r}")
        if (self.state == "unscored") != (self.reason is not None):
            raise ValueError(f"reason {self.reason!r} does not fit state {self.state!r}")
        return self


class Choice(Record):
    """What one reply said on one axis, in model ids."""

    state: Literal["win", "tie"]
    winner: str | None = None


class OrderRecord(Record):
    """One order of a pair: who was shown first, and what came back."""

    first: str
    """Model id whose image was shown first."""
    second: str
    verdict: dict[str, Choice] = Field(default_factory=dict)
    """Axis -> choice; empty if the reply failed."""
    reason: FailureKind | None = None
    """Why there is no verdict; None if there is one."""
    detail: str = ""
    """The error, or where a complete reply went wrong. Never holds a key."""
    explanation: str = ""
    """The judge's own words, cut to 500 characters."""
    strength: dict[str, float] = Field(default_factory=dict)
    """Axis -> how clear the judge called it, where the card asks; unused in the headline."""
    reply: str | None = None
    """Key of the raw reply in ``replies.sqlite``."""
    attempts: int = 0
    """Calls made for it in its life, retries counted."""
    mode: dict[str, str] = Field(default_factory=dict)
    """What the endpoint made us give up: response format, token parameter, temperature, layout."""
    usage: Usage = Field(default_factory=Usage)


class Vote(Record):
    """One juror's outcome."""

    judge: str
    family: str
    axes: dict[str, AxisOutcome]
    detail: str = ""


class VerdictRecord(Record):
    """A line of ``verdicts.jsonl``. The key is (judge, prompt_id, sample, models, repeat)."""

    schema_version: Literal[1] = 1
    judge: str
    judge_digest: str
    """Of the card, its prompt template included."""
    judge_kind: Literal["pairwise", "pointwise", "jury"] = "pairwise"
    judge_model: str = ""
    """The model that answered, as the endpoint calls it; empty for the offline jury."""
    base_url: str = ""
    prompt_id: str
    prompt: str
    category: str | None = None
    sample: int
    repeat: int = 0
    model_a: str
    model_b: str
    image_a: str | None
    """SHA-256 of the file; None if it is missing."""
    image_b: str | None
    axes: dict[str, AxisOutcome]
    orders: list[OrderRecord] = Field(default_factory=list)
    """Two for a pairwise judge, one per image for a pointwise one (``first`` is the model graded,
    ``second`` is empty), none for a judge that has no order."""
    order_free: bool = False
    """The judge sees one image at a time: a flip rate or a first-slot rate means nothing."""
    grades: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Model -> axis -> grade or mean score, where the judge gives numbers."""
    votes: list[Vote] = Field(default_factory=list)
    """Of a jury."""
    usage: Usage = Field(default_factory=Usage)

    @model_validator(mode="after")
    def _two_models(self) -> "VerdictRecord":
        if self.model_a == self.model_b:
            raise ValueError(f"a model cannot meet itself: {self.model_a!r}")
        for axis, outcome in self.axes.items():
            if outcome.winner not in (None, self.model_a, self.model_b):
                raise ValueError(f"{axis}: winner {outcome.winner!r} is not in the pair")
        return self

    def key(self) -> tuple[str, str, int, str, str, int]:
        """What makes this record unique in its file."""
        return (
            self.judge,
            self.prompt_id,
            self.sample,
            self.model_a,
            self.model_b,
            self.repeat,
        )
