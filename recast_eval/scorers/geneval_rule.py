"""GenEval's verdict from detections: counts, then colours and places, with partial credit.

Follows Ghosh et al. 2023 (arXiv:2310.11513) for the strict verdict, and for the partial score the
rule of the Flow-GRPO reward (Liu et al. 2025, arXiv:2505.05470): counts earn
``1 - |n - wanted| / wanted``; colour and place earn only where the counts are right.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from recast_eval.scorers.geneval_prompts import Request

MARGIN = 0.1
"""How far, in shares of the two boxes' size, a centre must be off to count as left, above, ..."""


class Detection(NamedTuple):
    """One object found."""

    name: str
    score: float
    box: tuple[float, float, float, float]
    """left, top, right, bottom in pixels."""
    color: str | None = None


class Verdict(NamedTuple):
    """Partial score in [0, 1] and whether everything is right."""

    score: float
    correct: bool


def relations(first: Detection, second: Detection) -> set[str]:
    """Where ``first`` is as seen from ``second``; empty if the boxes nearly coincide."""
    a, b = np.array(first.box).reshape(2, 2), np.array(second.box).reshape(2, 2)
    offset = a.mean(0) - b.mean(0)
    size = (a[1] - a[0]) + (b[1] - b[0])
    rest = np.sign(offset) * np.maximum(np.abs(offset) - MARGIN * size, 0)
    if not rest.any():
        return set()
    x, y = rest / np.linalg.norm(offset)
    found = {"left of"} if x < -0.5 else {"right of"} if x > 0.5 else set()
    return found | ({"above"} if y < -0.5 else {"below"} if y > 0.5 else set())


def judge(request: Request, detections: Sequence[Detection]) -> Verdict:
    """Score detections, best first within a class, against what was asked for."""
    terms: list[float] = []
    kept: list[Detection] = []
    counts_right = True
    for wanted in request.objects:
        found = sorted((d for d in detections if d.name == wanted.name), key=lambda d: -d.score)
        terms.append(max(0.0, 1 - abs(len(found) - wanted.count) / wanted.count))
        counts_right &= len(found) == wanted.count
        kept += found[:1]
        if wanted.color:
            right = sum(d.color == wanted.color for d in found[: wanted.count]) / wanted.count
            terms.append(right if len(found) == wanted.count else 0.0)
    if request.relation:
        both = len(kept) == 2
        terms.append(float(both and request.relation in relations(kept[0], kept[1])))
    return Verdict(float(np.mean(terms)), counts_right and min(terms) == 1.0)
