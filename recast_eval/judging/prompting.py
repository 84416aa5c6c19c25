"""From a card, a prompt and two pictures to the exact message. Pure.

Content is fenced by a nonce that it cannot know: it is derived from the content itself.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from jinja2 import StrictUndefined, Template, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from recast_eval.errors import ConfigError
from recast_eval.judging.cards import JudgeCard
from recast_eval.records import digest

_TEMPLATES: Final = ImmutableSandboxedEnvironment(  # text for a model, not HTML: no escaping
    undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True
)


_FACTS: Final = {"facts_a", "facts_b"}


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent: text parts and, between them, slots for pictures (0 is shown first)."""

    parts: tuple[str | int, ...]
    nonce: str

    def text(self, images: tuple[str, ...]) -> str:
        """The message as one text with each picture named by its digest, for keys."""
        named = [p if isinstance(p, str) else f"<image {images[p]}>" for p in self.parts]
        return "\n".join(named)


@lru_cache(maxsize=64)
def _compiled(text: str) -> Template:
    return _TEMPLATES.from_string(text)


def render(
    card: JudgeCard,
    prompt: str,
    images: tuple[str, ...],
    *,
    repeat: int = 0,
    facts: tuple[str, ...] = (),
) -> Message:
    """Fill the card's template.

    Args:
        card: A loaded card.
        prompt: The prompt of both images, as data.
        images: Digests of the encoded pictures in the order in which they are shown.
        repeat: Which repetition this is.
        facts: Descriptions of the pictures, for a judge that reads text only.

    Raises:
        ConfigError: The template does not compile or run, names what it does not get, or leaves
            out a picture (with layout ``none``: the facts), which would be judged unseen.
    """
    nonce = digest([card.digest, prompt, list(images), list(facts), repeat], 12)
    marks = {f"image_{name}": f"\0image {nonce} {i}\0" for i, name in enumerate("ab")}
    told = {f"facts_{name}": fact for name, fact in zip("ab", facts, strict=False)}
    values: Mapping[str, Any] = {
        **marks,
        **told,
        "prompt": prompt,
        "axes": card.axes,
        "nonce": nonce,
        "low": card.grades.low,
        "high": card.grades.high,
    }
    where = f"{card.template} of {card.name}"
    try:
        text = _compiled(card.template_text).render(values)
    except Exception as error:  # whatever an expression of a template may raise
        raise ConfigError([f"{where}: {error}"]) from error
    pieces = re.split(rf"\0image {nonce} (\d)\0", text)
    parts = [int(p) if i % 2 else p.strip("\n") for i, p in enumerate(pieces)]
    shown = {f"image_{'ab'[part]}" for part in parts if isinstance(part, int)}
    _check_shown(card, shown, len(images), where)
    return Message(tuple(p for p in parts if p != ""), nonce)


def _check_shown(card: JudgeCard, shown: set[str], images: int, where: str) -> None:
    wanted = {f"image_{name}" for name in "ab"[:images]}
    if card.images.layout == "none":
        named = _named(card.template_text)
        wanted, shown = {f"facts_{name}" for name in "ab"[:images]}, shown | (named & _FACTS)
    missing, stray = sorted(wanted - shown), sorted(shown - wanted)
    if missing:
        raise ConfigError([f"{where}: a {card.kind} judge is shown {' and '.join(missing)} too"])
    if stray:
        layout = f"with layout {card.images.layout} is not shown"
        raise ConfigError([f"{where}: a {card.kind} judge {layout} {' and '.join(stray)}"])


@lru_cache(maxsize=64)
def _named(text: str) -> set[str]:
    """Variables that a template uses."""
    return meta.find_undeclared_variables(_TEMPLATES.parse(text))


def reply_schema(card: JudgeCard) -> dict[str, Any]:
    """JSON schema of the answer: one a card, so that servers compile it once."""
    answers: dict[str, Any]
    if card.kind == "pointwise":
        grade = {"type": "integer", "enum": list(range(card.grades.low, card.grades.high + 1))}
        answers = dict.fromkeys(card.axes, grade)
    else:
        choice = {"type": "string", "enum": ["A", "B", *(["tie"] if card.ties else [])]}
        answers = dict.fromkeys(card.axes, choice)
    properties: dict[str, Any] = {
        "ticket": {"type": "string"},
        "reason": {"type": "string"},
        **answers,
    }
    if "strength" in card.template_text:
        properties["strength"] = {"type": "integer", "enum": [0, 1, 2, 3]}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
