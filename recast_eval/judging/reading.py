"""Read a stored call with the parser of today: fresh reply, resumed run and replay alike."""

import logging
from dataclasses import dataclass, field
from typing import cast

from recast_eval.judging.cards import JudgeCard
from recast_eval.judging.parse import (
    VerdictError,
    explanation_of,
    parse_grades,
    parse_verdict,
    strength_of,
)
from recast_eval.judging.records import FailureKind
from recast_eval.judging.store import CallRow

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Read:
    """What a call says."""

    verdict: dict[str, str] = field(default_factory=dict)
    """Axis -> token, for a pairwise judge."""
    grades: dict[str, float] = field(default_factory=dict)
    """Axis -> grade, for a pointwise one."""
    reason: FailureKind | None = None
    detail: str = ""
    explanation: str = ""
    strength: dict[str, float] = field(default_factory=dict)


def read_call(card: JudgeCard, call: CallRow, *, prompt: str, nonce: str | None) -> Read:
    """Interpret one call. Whatever it holds: a reply is paid for, and must not be lost to a fault.

    Args:
        card: The judge.
        call: As stored.
        prompt: The prompt that was shown; its own words are no verdict.
        nonce: Ticket of the question.

    Returns:
        What it says. A fault of our reader is no verdict, logged with its traceback; the reply
        stays in the store, for a reader that is mended.
    """
    try:
        return _read(card, call, prompt, nonce)
    except Exception as error:
        log.exception("a reply to question %s could not be read", call.key)
        said = f"our reader failed: {type(error).__name__}: {error}"
        return Read(reason="no_verdict", detail=said[:300])


def _read(card: JudgeCard, call: CallRow, prompt: str, nonce: str | None) -> Read:
    if call.reply is None:
        return Read(reason=cast(FailureKind, call.state), detail=call.detail)
    if call.refusal:
        return Read(reason="refused", detail=call.refusal[:300])
    if call.finish == "content_filter":
        return Read(reason="content_filter", detail="the endpoint's filter stopped the reply")
    axes = tuple(card.axes)
    try:
        if card.kind == "pointwise":
            grades = parse_grades(
                call.reply,
                axes,
                low=card.grades.low,
                high=card.grades.high,
                finish_reason=call.finish,
                ticket=nonce,
                content=(prompt,),
            )
            said = explanation_of(call.reply)
            return Read(grades={a: float(g) for a, g in grades.items()}, explanation=said)
        verdict = parse_verdict(
            call.reply,
            axes,
            ties=card.ties,
            finish_reason=call.finish,
            ticket=nonce,
            content=(prompt,),
        )
    except VerdictError as error:
        return Read(reason=error.kind, detail=str(error)[:300])
    return Read(
        verdict={axis: str(token) for axis, token in verdict.items()},
        explanation=explanation_of(call.reply),
        strength=strength_of(call.reply, axes),
    )
