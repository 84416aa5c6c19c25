"""UnifiedReward 2: a vision-language model tuned to grade pictures (arXiv:2503.05236).

Served by vLLM, SGLang or the like; here is only the question and how its answer is read.
"""

import os
import re
from pathlib import Path
from typing import Final

from recast_eval.errors import MissingError
from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import Scorer, ScorerCard, ScorerSpec

VARIABLE: Final = "RECAST_UNIFIED_REWARD_URL"
QUESTION_VARIABLE: Final = "RECAST_UNIFIED_REWARD_QUESTION"
CARD: Final = ScorerCard(
    name="unified-reward",
    version=1,
    family="unified-reward",
    what="the picture fits its prompt, holds together and pleases, as a tuned model grades it",
    unit="mean of three grades of 1-5 (each in `detail`; published recipes divide by 5)",
    low=1.0,
    high=5.0,
    needs=(f"a server of the model, URL#MODEL in {VARIABLE}, its key if any in OPENAI_API_KEY",),
    source="https://github.com/CodeGoat24/UnifiedReward",
    licence="MIT code; the weights have their own",
    weights="CodeGoat24/UnifiedReward-2.0-qwen3vl-8b",
    preprocessing="PNG, longer side reduced to 1024, shorter enlarged from below 28; "
    "temperature 0; the question's digest is the revision",
)
AXES: Final = ("Alignment", "Coherence", "Style")
QUESTION: Final = (
    "Grade the picture against its caption, from 1 to 5, on three axes: Alignment (it shows what "
    "the caption says), Coherence (nothing in it is broken or impossible), Style (it pleases the "
    "eye, whatever the caption says). Answer with these three lines and nothing else:\n"
    "Alignment Score (1-5): X\nCoherence Score (1-5): Y\nStyle Score (1-5): Z\n\n"
    "Text Caption: [{prompt}]"
)
"""Asks for the published form of answer in words of our own: for published numbers, put the
published question, with ``{prompt}`` in it, into the file that RECAST_UNIFIED_REWARD_QUESTION
names."""
_LINE = re.compile(r"(Alignment|Coherence|Style) Score \(1-5\):\s*(\d+(?:\.\d+)?)")


def read_grades(reply: str) -> Scored | Failed:
    """Three lines, one an axis, each grade within 1-5; anything else is a failure."""
    from recast_eval.scorers.vlm import unreadable

    grades: dict[str, float] = {}
    for line in filter(None, map(str.strip, reply.split("\n"))):
        found = _LINE.fullmatch(line)
        if found is None:
            return unreadable(reply, "a line is no grade")
        if found[1] in grades:
            return unreadable(reply, f"{found[1]} is graded twice")
        grades[found[1]] = float(found[2])
        if not 1 <= grades[found[1]] <= 5:
            return unreadable(reply, f"{found[1]} is outside 1-5")
    missing = [axis for axis in AXES if axis not in grades]
    if missing:
        return unreadable(reply, f"no grade of {', '.join(missing)}")
    detail = {axis.lower(): grades[axis] for axis in AXES}
    return Scored(value=sum(grades.values()) / len(AXES), detail=detail)


def _question() -> str:
    from recast_eval.scorers.vlm import SLOT

    place = os.environ.get(QUESTION_VARIABLE)
    if not place:
        return QUESTION
    try:
        text = Path(place).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MissingError(f"scorer unified-reward: {QUESTION_VARIABLE}: {error}") from error
    if SLOT not in text:
        raise MissingError(f"scorer unified-reward: {place} has no {SLOT} in it")
    return text


def build(*, device: str = "cpu", weights: str | None = None) -> Scorer:
    """See ``ScorerFactory``; ``weights`` is URL#MODEL, ``device`` is the server's affair."""
    from recast_eval.scorers.vlm import VlmScorer, find_endpoint

    return VlmScorer(CARD, find_endpoint(CARD, weights, VARIABLE), _question(), read_grades)


SPEC: Final = ScorerSpec(CARD, build, served=True)
