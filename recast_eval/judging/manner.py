"""How an endpoint has to be spoken to: servers differ, so we step down and record it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from recast_eval.chat import SAMPLING, Budget, Terms, ease, first_terms, parameters
from recast_eval.judging.cards import JudgeCard

ResponseFormat = Literal["json_schema", "json_object", "text"]
Layout = Literal["interleaved", "side_by_side", "none"]
_NEXT_FORMAT: Final[Mapping[str, ResponseFormat]] = {
    "json_schema": "json_object",
    "json_object": "text",
}
_ABOUT_FORMAT: Final = re.compile(
    r"response_format|json_schema|json_object|structured output|json mode"
)
_ONE_IMAGE: Final = re.compile(
    r"at most (?:1|one) image|only (?:one|1|a single) image|single image only|multiple images"
    r"|too many images|more than (?:one|1) image|limit[_-]mm[_-]per[_-]prompt|mm_per_prompt"
    r"|image\w*\b.{0,40}\blimit(?:ed)? (?:of|to) (?:1|one)\b"
)
_NO_IMAGES: Final = re.compile(
    r"(?:not|n't) support (?:image|vision|multimodal)|image input is not supported"
    r"|not a multimodal model|image_url.{0,30}(?:not supported|unsupported|invalid)|no mmproj"
)

ONE_IMAGE_HINT: Final = (
    "this server takes one image a request: start it with room for two (vLLM: "
    "--limit-mm-per-prompt '{\"image\": 2}'), or use a card with `fallback: side_by_side` "
    "(pairwise-strict-v1), or pointwise-v1"
)
NO_IMAGE_HINT: Final = "this model reads no images: choose a vision-language model"


@dataclass(frozen=True, slots=True)
class Manner:
    """What a request to this endpoint looks like."""

    response_format: ResponseFormat
    budget: Budget
    layout: Layout
    omitted: frozenset[str] = frozenset()
    """What the endpoint refused, as in ``Terms``."""

    @property
    def terms(self) -> Terms:
        """The part that scorers behind an endpoint have in common with judges."""
        return Terms(self.budget, self.omitted)

    def record(self) -> dict[str, str]:
        """For the verdict: what was given up, and what was kept."""
        found: dict[str, str] = {
            "response_format": self.response_format,
            "tokens": self.budget,
            "layout": self.layout,
        }
        if self.omitted:
            found["omitted"] = ",".join(sorted(self.omitted))
        return found


def first_manner(card: JudgeCard, base_url: str) -> Manner:
    """Where the step-down begins."""
    return Manner(
        response_format=card.response_format,
        budget=first_terms(base_url).budget,
        layout=card.images.layout,
    )


def unfit_hint(card: JudgeCard, manner: Manner, message: str) -> str | None:
    """Why this endpoint can answer no question of this card, if the message says so."""
    said = message.lower()
    if _NO_IMAGES.search(said) and manner.layout != "none":
        return NO_IMAGE_HINT
    one = _ONE_IMAGE.search(said) and manner.layout == "interleaved"
    if one and (card.kind == "pointwise" or card.images.fallback == "none"):
        return ONE_IMAGE_HINT
    return None


def step_down(card: JudgeCard, manner: Manner, message: str) -> Manner | None:
    """The next manner after a rejection, or None if its message names nothing that we can change.

    Args:
        card: What the judge wants.
        manner: What was rejected.
        message: The endpoint's words.
    """
    said = message.lower()
    if _ONE_IMAGE.search(said):
        if manner.layout == "interleaved" and card.images.fallback == "side_by_side":
            return replace(manner, layout="side_by_side")
        return None
    eased = ease(manner.terms, said)
    if eased is not None:
        return replace(manner, budget=eased.budget, omitted=eased.omitted)
    if _ABOUT_FORMAT.search(said) and manner.response_format in _NEXT_FORMAT:
        return replace(manner, response_format=_NEXT_FORMAT[manner.response_format])
    return None


def build_body(
    card: JudgeCard,
    manner: Manner,
    model: str,
    content: str | list[dict[str, Any]],
    schema: dict[str, Any],
    max_tokens: int,
) -> dict[str, Any]:
    """The request, exact."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": content}],
    }
    sampling = {name: getattr(card.decoding, name) for name in SAMPLING}
    body |= parameters(manner.terms, max_tokens, sampling)
    if manner.response_format == "json_schema":
        form = {"name": "verdict", "strict": True, "schema": schema}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    elif manner.response_format == "json_object":
        body["response_format"] = {"type": "json_object"}
    return body
