"""Read a judge's reply. Strict: a verdict stands in a contract, or there is none.

Two contracts are read, and all that is found must agree:

* JSON: an object with a key an axis, ``{"overall": "A", "aesthetics": "tie"}``;
* lines: ``OVERALL: A`` at the start of a line, ``[[B]]`` at the end of one, or a reply that
  is nothing but the token.

Prose is never searched for letters. Tolerated around the contract: code fences, text before and
after, a leading think block, stray quotation marks, the same object twice, JSON inside a string.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeGuard, TypeVar

from recast_eval.errors import JudgeError
from recast_eval.judging.contracts import Contract, claims_in, objects_in

VerdictErrorKind = Literal[
    "empty", "no_verdict", "ambiguous", "out_of_range", "truncated", "refused"
]
Token = Literal["A", "B", "tie"]
T = TypeVar("T")

MAX_REPLY: Final = 65_536
"""Characters after the reasoning block; a longer reply has missed the contract, and stays cheap."""

_THOUGHT: Final = re.compile(r"\s*<(think|thinking|thought|reasoning)>", re.IGNORECASE)
_TOKEN: Final = re.compile(
    r"(?:(?:the\s+)?(?:image|option|candidate|picture)\s+)?(?P<token>a|b|tie|draw)"
    r"(?:\s*$|\s*[.,;:!(—–-]\s*(?P<rest>.*)$)",
    re.IGNORECASE | re.DOTALL,
)
_BOTH: Final = re.compile(r"(?:image\s+)?[ab]\s*(?:/|&|\||or\b|and\b)", re.IGNORECASE)
_OTHER_TOKEN: Final = re.compile(r"\b(a|b|tie|draw|both|neither|not|or)\b", re.IGNORECASE)
_REFUSAL: Final = re.compile(
    r"\bi(?:'m| am) (?:sorry|unable|not able|afraid)\b|\bi (?:can(?:'t|not| not)|won't|will not)\b"
    r"|\bas an ai\b|\bunable to (?:assist|help|comply|compare|evaluate|judge|process)\b"
    r"|\b(?:can't|cannot|can not) (?:assist|help|comply|compare|evaluate|judge|provide|answer)\b"
    r"|\b(?:content|usage|safety) polic(?:y|ies)\b|\bviolat\w+ .{0,40}(?:polic|guideline)"
    r"|\bagainst (?:my|our|the) (?:polic|guideline|rules)|\bi must decline\b",
    re.IGNORECASE,
)


class VerdictError(JudgeError):
    """A complete reply holds no usable verdict; ``kind`` says how."""

    def __init__(self, kind: VerdictErrorKind, message: str) -> None:
        self.kind: VerdictErrorKind = kind
        super().__init__(f"{kind}: {_writable(message)}")


class _OutOfRangeError(ValueError):
    """A value in a contract that the contract does not allow."""


class _TwoValuesError(ValueError):
    """One value that names two tokens."""


@dataclass(frozen=True, slots=True)
class _Reading(Generic[T]):
    """How one kind of reply is read."""

    contract: Contract
    read: Callable[[Any], T]
    finish_reason: str | None
    ticket: str | None
    content: Sequence[str]


def parse_verdict(
    reply: str | None,
    axes: Sequence[str] = ("overall",),
    *,
    ties: bool = True,
    finish_reason: str | None = None,
    ticket: str | None = None,
    content: Sequence[str] = (),
) -> dict[str, Token]:
    """Read which image a judge preferred on each axis.

    Args:
        reply: The judge's text, whole.
        axes: Names that the contract asked for. Generic labels (``VERDICT``, ``winner``, ``[[A]]``)
            count for ``overall``, or for the only axis.
        ties: Whether ``tie`` is allowed; in a forced choice it is out of range.
        finish_reason: The endpoint's; ``length`` is truncated whatever the text looks like.
        ticket: A secret of this question. An object that carries another ticket is not the
            judge's; one that carries this one outranks all else.
        content: Texts that the judge was shown. Where the reply repeats one word for word, the
            repetition is not read, so that a prompt cannot hold its own verdict.

    Returns:
        Axis -> ``"A"`` (shown first), ``"B"`` or ``"tie"``, for every axis.

    Raises:
        VerdictError: There is no single verdict for every axis.
    """

    def read(value: Any) -> Token:
        choice = _choice(value)
        if choice == "tie" and not ties:
            raise _OutOfRangeError("a tie in a forced choice")
        return choice

    contract = Contract(tuple(axes), ("verdict", "verdicts", "axes", "result", "results"))
    return _parse(reply, _Reading(contract, read, finish_reason, ticket, content))


def parse_grades(
    reply: str | None,
    axes: Sequence[str] = ("overall",),
    *,
    low: int = 1,
    high: int = 10,
    finish_reason: str | None = None,
    ticket: str | None = None,
    content: Sequence[str] = (),
) -> dict[str, int]:
    """Read a whole-number grade on each axis, in ``[low, high]``.

    Raises:
        VerdictError: A grade is missing, out of range, not whole or written as a word.
    """

    def read(value: Any) -> int:
        text = value if isinstance(value, str) else _as_text(value)
        match = re.fullmatch(rf"\s*(\d{{1,6}})\s*(?:/\s*{high}\s*)?\.?", text)
        if isinstance(value, bool) or match is None or not low <= int(match[1]) <= high:
            raise _OutOfRangeError(f"{text[:40]!r} is no whole number from {low} to {high}")
        return int(match[1])

    contract = Contract(tuple(axes), ("grades", "scores", "ratings", "axes", "result", "results"))
    return _parse(reply, _Reading(contract, read, finish_reason, ticket, content))


def _as_text(value: Any) -> str:
    """A number as JSON has it; anything else by its type, as a nest may be deep."""
    number = isinstance(value, int | float)
    return json.dumps(value) if number else f"a {type(value).__name__}"


def strength_of(reply: str, axes: Sequence[str]) -> dict[str, float]:
    """Numbers that a reply gives as ``strength`` (one, or one an axis); empty if none."""
    for found in objects_in(_without_thoughts(reply))[0]:
        value = found.get("strength")
        given = value if isinstance(value, dict) else dict.fromkeys(axes, value)
        numbers = ((axis, given.get(axis)) for axis in axes)
        return {axis: float(number) for axis, number in numbers if _is_number(number)}
    return {}


def _is_number(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float) and math.isfinite(value)


def explanation_of(reply: str, limit: int = 500) -> str:
    """The judge's own words: the ``reason`` of its object, else the reply, cut to ``limit``."""
    try:
        found = objects_in(_without_thoughts(reply))[0]
    except VerdictError:
        found = []
    for item in found:
        for key in ("reason", "reasoning", "explanation"):
            if isinstance(item.get(key), str):
                return _writable(str(item[key])[:limit])
    return _writable(reply.strip()[:limit])


def _writable(text: str) -> str:
    """The text with what UTF-8 cannot hold, half a surrogate pair, as a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _parse(reply: str | None, how: _Reading[T]) -> dict[str, T]:
    axes = how.contract.axes
    if not axes or len({axis.casefold() for axis in axes}) != len(axes):
        raise ValueError(f"axes must be distinct and at least one, got {list(axes)}")
    if how.finish_reason == "length":
        raise VerdictError("truncated", "the reply stopped at its token budget")
    if how.finish_reason == "content_filter":
        raise VerdictError("refused", "the endpoint's content filter stopped the reply")
    text = _without_thoughts(reply or "")
    if len(text) > MAX_REPLY:
        raise VerdictError("no_verdict", f"{len(text):,} characters are no verdict")
    if not re.sub(r"```\w*", "", text).strip():
        raise VerdictError("empty", "the reply has no text")
    for shown in how.content:
        if claims_in(shown, how.contract):
            text = text.replace(shown, " ")
    claims = claims_in(text, how.contract, how.ticket)
    if not any(claims.values()) and how.contract.general:
        claims[how.contract.general] = _whole_reply(text, how.read)
    values = {axis: _settle(axis, claims.get(axis, []), how.read) for axis in axes}
    missing = [axis for axis in axes if values[axis] is None]
    if missing:
        raise _why_missing(text, missing)
    return {axis: value for axis, value in values.items() if value is not None}


def _why_missing(text: str, missing: list[str]) -> VerdictError:
    if objects_in(text)[1]:
        return VerdictError("truncated", "the reply ends inside a JSON object")
    if _REFUSAL.search(text[:400].replace("\u2019", "'")):
        return VerdictError("refused", text.strip()[:160])
    return VerdictError("no_verdict", f"no verdict for {', '.join(missing)}")


def _without_thoughts(text: str) -> str:
    """Drop think blocks that stand at the start; later ones may be quoted, so they stay."""
    position = 0
    while match := _THOUGHT.match(text, position):
        closing = re.compile(f"</{match[1]}>", re.IGNORECASE)
        end = closing.search(text, match.end())
        if end is None:
            raise VerdictError("truncated", "the reply ends inside its reasoning")
        position = end.end()
    return text[position:]


def _whole_reply(text: str, read: Callable[[Any], T]) -> list[Any]:
    """The reply itself, if it is a short token and nothing else."""
    bare = text.strip().strip("*_`\"'").strip()
    if len(bare) > 40:
        return []
    try:
        read(bare)
    except (_OutOfRangeError, _TwoValuesError):
        return []
    return [bare]


def _settle(axis: str, claims: list[Any], read: Callable[[Any], T]) -> T | None:
    """One value from all that was claimed for an axis; None if nothing was."""
    found: list[T] = []
    for claim in claims:
        try:
            value = read(claim)
        except _TwoValuesError as error:
            raise VerdictError("ambiguous", f"{axis}: {error}") from None
        except _OutOfRangeError as error:
            raise VerdictError("out_of_range", f"{axis}: {error}") from None
        if value not in found:
            found.append(value)
    if len(found) > 1:
        raise VerdictError("ambiguous", f"{axis}: {' and '.join(map(str, found))}")
    return found[0] if found else None


def _choice(value: Any) -> Token:
    """Map a value of a contract to a token by an allow-list."""
    if not isinstance(value, str):
        raise _OutOfRangeError(f"a {type(value).__name__} is not A, B or tie")
    text = value.strip().strip("*_`[]\"' ")
    match = _TOKEN.match(text)
    if match is None:
        if _BOTH.match(text):
            raise _TwoValuesError(f"{text[:40]!r} names both")
        raise _OutOfRangeError(f"{text[:40]!r} is not A, B or tie")
    if match["rest"] and _OTHER_TOKEN.search(match["rest"]):
        raise _TwoValuesError(f"{text[:60]!r} names more than one")
    word = match["token"].lower()
    if word in ("tie", "draw"):
        return "tie"
    return "A" if word == "a" else "B"
