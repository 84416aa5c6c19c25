"""Pairwise and pointwise judging by language models and juries."""

from recast_eval.judging.parse import VerdictError, parse_grades, parse_verdict
from recast_eval.judging.records import (
    AxisOutcome,
    Choice,
    OrderRecord,
    Usage,
    VerdictRecord,
    Vote,
)

__all__ = [
    "AxisOutcome",
    "Choice",
    "OrderRecord",
    "Usage",
    "VerdictError",
    "VerdictRecord",
    "Vote",
    "parse_grades",
    "parse_verdict",
]
