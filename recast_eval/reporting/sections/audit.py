"""The judge audit, as ``recast-eval audit`` wrote it."""

from typing import Any

from recast_eval.reporting.blocks import Block, Cell, Maker, NoteBlock, Section, num, words
from recast_eval.reporting.distrust import audit_verdicts
from recast_eval.reporting.facts import EvaluationFacts

MOST_ROWS = 400


def section(facts: EvaluationFacts, maker: Maker) -> Section | None:
    """Its lines of verdict, then every number of it."""
    audit = facts.evaluation.audit
    if audit is None:
        return None
    blocks: list[Block] = [NoteBlock(f"{name}: {text}") for name, text in audit_verdicts(audit)]
    rows = [[words(path), _cell(value)] for path, value in flatten(audit)][:MOST_ROWS]
    blocks.append(
        maker.table(
            "Every number of the audit",
            "Null tests, position, image properties, repeat agreement, as audit.json names them.",
            ["what", "value"],
            rows,
            source=f"recast-eval audit {facts.evaluation.name}",
        )
    )
    return Section(
        "audit",
        "Audit of the judge",
        "Whether the judge looks at the pictures: the same picture twice must tie, swapping must "
        "not change a verdict, brightness must not decide.",
        tuple(blocks),
    )


def flatten(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """(dotted path, leaf) of a JSON value, in order."""
    if isinstance(value, dict):
        pairs = [(str(k), v) for k, v in value.items()]
    elif isinstance(value, list):
        pairs = [(str(i), v) for i, v in enumerate(value)]
    else:
        return [(path, value)]
    return [leaf for key, v in pairs for leaf in flatten(v, f"{path}.{key}" if path else key)]


def _cell(value: Any) -> Cell:
    if isinstance(value, bool):
        return words("yes" if value else "no")
    if isinstance(value, (int, float)):
        return num(float(value), 4)
    return Cell("no data", None, "none") if value is None else words(str(value))
