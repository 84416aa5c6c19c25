"""Schema of ``audit.json`` and ``votes.jsonl``."""

from typing import Annotated, Literal

from pydantic import Field

from recast_eval.records import Record


class Measured(Record):
    """A number with its interval and what stands behind it."""

    kind: Literal["measured"] = "measured"
    estimate: float
    low: float
    high: float
    n: int
    """Pairs or replies counted."""
    n_prompts: int


class NotMeasured(Record):
    """There is no number, and why."""

    kind: Literal["not measured"] = "not measured"
    reason: str


Measure = Annotated[Measured | NotMeasured, Field(discriminator="kind")]

Level = Literal["trust it", "trust it with care", "uninformative"]


class Position(Record):
    """Whether the judge listens to the order of the pictures."""

    first_slot: Measure
    """Share of replies that name the first picture; 0.5 is fair."""
    same_winner: Measure
    """Share of pairs, both orders decisive, in which both name the same model; chance is 0.5."""
    flips: Measure
    """Share of scored pairs whose orders contradict each other."""
    ties: Measure
    """Share of scored pairs that both orders call a tie, or one order does."""


class NullTest(Record):
    """A question without a right answer: the two pictures show the same."""

    what: Literal["same image", "re-encoded image"]
    asked: int
    scored: int
    first_slot: Measure
    """Share of replies that name the first picture; ties count half."""
    tie: Measure
    """Share of replies that see no difference: the right answer, where a card allows it."""
    original_wins: Measure
    """Win rate of the original over its copy; 0.5 is fair."""


class PropertyBias(Record):
    """How the winner depends on a property of the pictures."""

    name: str
    higher_wins: Measure
    """Win rate of the picture that has more of it, all pairs of models together."""
    slope: Measure
    """Log-odds per standard deviation of the difference within the most judged pair of models,
    which holds the models themselves apart."""
    p_holm: float
    """Of the slope (0 if it has none), adjusted over properties; 1 if not measured."""


class ScorerAgreement(Record):
    """A scorer beside the judge."""

    scorer: str
    role: Literal["train", "heldout"]
    same_side: Measure
    """Share of decisive pairs in which the scorer is higher for the judge's winner."""
    kappa: Measure
    contradictions: list[str]
    """The pairs where they contradict each other most, in words."""


class JudgeAgreement(Record):
    """Another judge of the same pairs."""

    judge: str
    raw: Measure
    kappa: Measure


class Human(Record):
    """People's votes beside the judge."""

    voters: int
    votes: int
    accuracy: Measure
    """Share of pairs, decisive for both, in which judge and people name the same model."""
    kappa: Measure
    """Three labels: either model, or a tie; a flip of the judge counts as a tie."""
    alpha: Measure
    """Krippendorff's alpha of judge and majority of people."""
    among_people: Measure
    """Krippendorff's alpha of the people among each other."""


class JudgeAudit(Record):
    """Everything known about one judge on one axis."""

    judge: str
    judge_digest: str
    axis: str
    verdict: str
    """One line, beginning with the level: what the reader does with this judge."""
    level: Level
    reasons: list[str]
    n_scored: int
    n_total: int
    position: Position | None = None
    """None for a judge that sees one picture at a time."""
    repeats: Measure
    """Krippendorff's alpha of repeated questions; 1 is the same answer each time."""
    nulls: list[NullTest]
    properties: list[PropertyBias]
    raw_win_rate: Measure
    adjusted_win_rate: Measure
    """The same pair of models with equal picture properties; beside the raw one, not instead."""
    pair: list[str]
    """The pair of models of the two rates above."""
    scorers: list[ScorerAgreement]
    judges: list[JudgeAgreement]
    human: Human | None = None


class AuditRecord(Record):
    """``audit.json``."""

    schema_version: Literal[1] = 1
    judges: list[JudgeAudit]
    skipped: list[str] = Field(default_factory=list)
    """What could not be looked at, and why."""


class Vote(Record):
    """A line of ``votes.jsonl``: one person on one pair, models by name."""

    schema_version: Literal[1] = 1
    voter: str
    prompt_id: str
    sample: int
    model_a: str
    model_b: str
    axis: str
    winner: str | None
    """Model id; None is a tie."""
    first: str
    """The model that was on the left."""
    page: str
    """Digest of the page, so that a vote belongs to what was shown."""
    seconds: float | None = Field(default=None, ge=0)

    def key(self) -> tuple[str, str, int, str, str, str]:
        """One vote of a person on a pair and axis."""
        return (self.voter, self.prompt_id, self.sample, self.model_a, self.model_b, self.axis)
