"""Judge cards: everything that decides what a judge is asked and how its answer is read.

A card is ``judges/NAME-vN/judge.yaml``; its prompt template is ``prompts/judges/*.j2``. The digest
covers both, so that a changed word is another judge to the store and to every record.
"""

import re
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from recast_eval.content import content
from recast_eval.content.yaml_text import parse_yaml
from recast_eval.errors import ConfigError
from recast_eval.records import Record, digest

_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*-v\d+")
_INCLUDE: Final = re.compile(r"""\{%-?\s*include\s+["']([^"']+)["']\s*-?%\}\n?""")


class Decoding(Record):
    """How the model is sampled."""

    temperature: float | None = Field(default=0.0, ge=0, le=2)
    """None leaves it to the endpoint."""
    max_tokens: int = Field(default=700, ge=1)
    """Output budget; raised once, by ``raise_to``, if a reply is cut short."""
    raise_to: int = Field(default=4, ge=1)
    """Factor of the one raise; 1 never raises."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = None


class ImageRule(Record):
    """How pictures are sent: one rule for both sides."""

    max_side: int = Field(default=1024, ge=16)
    min_side: int = Field(default=0, ge=0)
    format: Literal["png", "jpeg", "webp"] = "png"
    quality: int = Field(default=95, ge=1, le=100)
    max_bytes: int = Field(default=4_500_000, ge=10_000)
    """Of one encoded image; a pair with a larger one is halved in size, both sides alike."""
    layout: Literal["interleaved", "side_by_side", "none"] = "interleaved"
    """``none``: a judge that reads text only; the template gets ``facts_a``, ``facts_b``."""
    fallback: Literal["side_by_side", "none"] = "none"
    """What to do where a server takes one image only. Recorded in each verdict."""
    detail: Literal["auto", "low", "high"] = "auto"
    tokens_per_image: int = Field(default=800, ge=0)
    """For the estimate only."""


class Grades(Record):
    """The scale of a pointwise judge; whole numbers."""

    low: int = 1
    high: int = 10

    @model_validator(mode="after")
    def _ordered(self) -> "Grades":
        if self.low >= self.high:
            raise ValueError(f"low {self.low} must be below high {self.high}")
        return self


class Endpoint(Record):
    """Names of environment variables; never the values."""

    base_url_env: str = "OPENAI_BASE_URL"
    model_env: str = "RECAST_JUDGE_MODEL"
    api_key_env: str = "OPENAI_API_KEY"


class Price(Record):
    """US dollars for a million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)


class Juror(Record):
    """A member of a jury: a scorer for the offline jury, another card for a jury of models."""

    scorer: str | None = None
    judge: str | None = None
    model: str | None = None
    """For ``judge``: a model of its own, else the run's."""
    base_url: str | None = None
    api_key_env: str | None = None
    """The variable with the key for ``base_url``; the run's key is never sent elsewhere."""
    axes: tuple[str, ...] = ("overall",)
    """For ``scorer``: the axes on which it votes."""
    margin: float = Field(default=0.0, ge=0)
    """For ``scorer``: a difference of at most this is a tie, in the scorer's unit."""

    @model_validator(mode="after")
    def _one(self) -> "Juror":
        if (self.scorer is None) == (self.judge is None):
            raise ValueError("a juror names a scorer or a judge, and not both")
        return self


class JudgeCard(Record):
    """A judge, whole."""

    name: str
    kind: Literal["pairwise", "pointwise", "jury"]
    what: str
    role: Literal["heldout"] = "heldout"
    family: str = ""
    """Lineage, where it is known; else the model's id stands in."""
    axes: dict[str, str]
    """Axis -> the question asked about it."""
    ties: bool = True
    both_orders: bool = True
    template: str = ""
    template_text: str = ""
    """Filled in when the card is loaded."""
    decoding: Decoding = Decoding()
    response_format: Literal["json_schema", "json_object", "text"] = "json_schema"
    """Where the step-down begins."""
    images: ImageRule = ImageRule()
    grades: Grades = Grades()
    repeats: int = Field(default=1, ge=1, le=100)
    endpoint: Endpoint = Endpoint()
    prices: dict[str, Price] = Field(default_factory=dict)
    """Model id -> price; needed for a cost cap."""
    timeout_s: float = Field(default=120, gt=0)
    jury: tuple[Juror, ...] = ()
    quorum: int = Field(default=1, ge=1)
    """Fewest scored votes (one a family) for a verdict of the jury."""

    @field_validator("name")
    @classmethod
    def _versioned(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError(f"{value!r} is not NAME-vN (lower case, digits, dashes)")
        return value

    @field_validator("axes")
    @classmethod
    def _some_axes(cls, value: dict[str, str]) -> dict[str, str]:
        bad = [axis for axis in value if not re.fullmatch(r"[a-z][a-z0-9_]*", axis)]
        if not value or bad:
            raise ValueError(f"axes need names like 'overall', got {bad or 'none'}")
        return value

    @model_validator(mode="after")
    def _whole(self) -> "JudgeCard":
        if self.kind == "jury":
            if not self.jury:
                raise ValueError("a jury needs members under `jury`")
        elif not self.template:
            raise ValueError("a judge that is asked needs a `template`")
        if len({juror.scorer is None for juror in self.jury}) > 1:
            raise ValueError("a jury is of scorers or of judges: its axes would mean two things")
        stray = {a for juror in self.jury for a in juror.axes} - set(self.axes)
        if stray:
            raise ValueError(f"jurors vote on axes that the card lacks: {sorted(stray)}")
        return self

    @cached_property
    def digest(self) -> str:
        """Name this judge by content, template included; where it runs and costs is not content."""
        seen = self.model_dump(
            mode="json",
            exclude={
                "endpoint": True,
                "prices": True,
                "timeout_s": True,
                "jury": {"__all__": {"api_key_env"}},
            },
        )
        return digest(seen)

    @property
    def offline(self) -> bool:
        """Whether it needs no endpoint."""
        return self.kind == "jury" and all(juror.scorer for juror in self.jury)


def card_names() -> list[str]:
    """Names of the shipped cards."""
    return sorted(path.parent.name for path in content("judges").glob("*/judge.yaml"))


def load_card(name: str) -> JudgeCard:
    """Load a shipped card by name, or any card by the path of its folder or file.

    Raises:
        ConfigError: There is none, or it is wrong; names every problem.
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        shipped = content("judges") / name / "judge.yaml"
        path = shipped if _NAME.fullmatch(name) and shipped.is_file() else path / "judge.yaml"
    if not path.is_file():
        raise ConfigError([f"no judge {name!r}; shipped are {', '.join(card_names())}"])
    try:
        data = parse_yaml(path.read_text("utf-8"))
        card = JudgeCard.model_validate(data)
    except ValidationError as error:
        raise ConfigError(
            [
                f"{path}: {'.'.join(map(str, e['loc'])) or 'card'}: {e['msg']}"
                for e in error.errors()
            ]
        ) from error
    except (ValueError, OSError) as error:
        raise ConfigError([f"{path}: {error}"]) from error
    if not card.template:
        return card
    return amended(card, template_text=_template_text(card.template, path.parent))


def amended(card: JudgeCard, **changes: Any) -> JudgeCard:
    """A card with other values, checked again and with a digest of its own."""
    return JudgeCard.model_validate(card.model_dump() | changes)


def _template_text(name: str, beside: Path, inside: tuple[Path, ...] = ()) -> str:
    """The template with its includes spliced in, so that the card's digest sees every word."""
    for folder in (beside, content("prompts") / "judges"):
        path = folder / name
        if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
            break
    else:
        raise ConfigError([f"no prompt template {name!r} in {beside} or prompts/judges"])
    if path in inside:
        raise ConfigError([f"the prompt template {path} includes itself"])
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: a prompt template is UTF-8, {error}"]) from error

    def splice(match: re.Match[str]) -> str:
        return _template_text(match[1], beside, (*inside, path))

    return _INCLUDE.sub(splice, text)
