"""The audit of an evaluation's judges: what they react to besides the pictures' merit."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from recast_eval.errors import DataError
from recast_eval.judging.audit_measures import (
    Item,
    other_judge,
    position,
    repeats,
)
from recast_eval.judging.audit_null import null_tests
from recast_eval.judging.audit_pictures import (
    Key,
    TextArea,
    measure_pictures,
    property_audit,
)
from recast_eval.judging.audit_records import AuditRecord, JudgeAudit, Vote
from recast_eval.judging.audit_scorers import by_item, human_agreement, scorer_agreement
from recast_eval.judging.audit_verdict import Facts, conclude, line
from recast_eval.judging.pairs import ImageSet, read_image_set
from recast_eval.judging.records import VerdictRecord
from recast_eval.records import ScoreRecord, read_records

AUDIT: Final = "audit.json"
VOTES: Final = "votes.jsonl"
_SEED: Final = 0
"""Of the bootstrap: the same evaluation gives the same audit."""


def audit(
    folder: Path,
    *,
    text: TextArea | None = None,
    on_picture: Callable[[], None] = lambda: None,
) -> AuditRecord:
    """Audit every judge of an evaluation from its files; nothing is asked.

    Args:
        folder: With ``verdicts.jsonl``; ``scores.jsonl``, ``images/``, ``votes.jsonl`` and the
            null tests in ``audit/`` are used where they are.
        text: Measures the area of visible text; left out if not given.
        on_picture: Called for each picture measured.

    Raises:
        DataError: There are no verdicts, or a file does not fit its schema.
    """
    path = folder / "verdicts.jsonl"
    if not path.is_file():
        raise DataError("no verdicts here: run recast-eval judge first", path=path)
    records = list({r.key(): r for r in read_records(path, VerdictRecord)}.values())
    if not records:
        raise DataError("no verdicts in it: run recast-eval judge first", path=path)
    scores = _scores(folder / "scores.jsonl")
    votes = read_votes(folder / VOTES)
    pictures, problems = measure_pictures(picture_paths(folder), text, on_picture)
    skipped = [f"picture not measured: {problem}" for problem in problems[:10]]
    if not pictures:
        skipped.append("picture properties: no images/MODEL/metadata.jsonl here")
    if text is None:
        skipped.append("visible text area: not asked for (audit --text)")
    judges: dict[str, list[VerdictRecord]] = {}
    for record in records:
        judges.setdefault(record.judge, []).append(record)
    items = {name: by_item(mine) for name, mine in judges.items()}
    found = [_judge(folder, name, judges, items, scores, votes, pictures) for name in judges]
    return AuditRecord(judges=found, skipped=skipped)


def read_votes(path: Path) -> list[Vote]:
    """People's votes, the last of each person on a pair; none if nobody voted."""
    if not path.is_file():
        return []
    return list({vote.key(): vote for vote in read_records(path, Vote)}.values())


def _scores(path: Path) -> list[ScoreRecord]:
    if not path.is_file():
        return []
    found = {(r.model, r.prompt_id, r.sample, r.scorer): r for r in read_records(path, ScoreRecord)}
    return list(found.values())


def image_sets(folder: Path) -> list[ImageSet]:
    """The models' images that the evaluation holds."""
    tables = sorted((folder / "images").glob("*/metadata.jsonl"))
    return [read_image_set(table.parent, table.parent.name) for table in tables]


def picture_paths(folder: Path) -> dict[Key, Path]:
    """Where each picture is; those that are missing are left out."""
    found: dict[Key, Path] = {}
    for images in image_sets(folder):
        for prompt_id, sample in images.records:
            picture = images.picture((prompt_id, sample))
            if picture.path is not None:
                found[images.model, prompt_id, sample] = picture.path
    return found


def main_axis(records: Sequence[VerdictRecord]) -> str:
    """``overall`` if it was judged, else the first axis."""
    axes = list(dict.fromkeys(axis for record in records for axis in record.axes))
    return "overall" if "overall" in axes or not axes else axes[0]


def _judge(
    folder: Path,
    name: str,
    judges: dict[str, list[VerdictRecord]],
    items: dict[str, dict[Item, VerdictRecord]],
    scores: Sequence[ScoreRecord],
    votes: Sequence[Vote],
    pictures: dict[Key, dict[str, float]],
) -> JudgeAudit:
    rng = np.random.default_rng(_SEED)
    everything = judges[name]
    axis = main_axis(everything)
    records = [r for r in everything if r.repeat == 0]
    outcomes = [r.axes[axis] for r in records if axis in r.axes]
    ordered = [r for r in records if r.orders and not r.order_free]
    where = position(ordered, axis) if ordered else None
    again = repeats(everything, axis, rng)
    nulls = null_tests(folder, name, axis)
    properties = property_audit(records, axis, pictures)
    jurors = {vote.judge for record in records for vote in record.votes}
    others_scores = [s for s in scores if s.scorer not in jurors]  # a juror agrees with itself
    scorers = scorer_agreement(records, axis, others_scores, rng)
    human = human_agreement(items[name], axis, votes, rng)
    others = [
        other_judge(items[name], items[other], (axis, main_axis(judges[other])), other, rng)
        for other in judges
        if other != name
    ]
    scored = [o for o in outcomes if o.state != "unscored"]
    level, reasons = conclude(
        Facts(
            n_scored=len(scored),
            n_total=len(records),
            n_prompts=len({r.prompt_id for r in records}),
            ties=sum(o.state == "tie" for o in scored),
            position=where,
            repeats=again,
            nulls=nulls,
            properties=properties.biases,
            scorers=scorers,
            human=human,
        )
    )
    return JudgeAudit(
        judge=name,
        judge_digest=records[0].judge_digest,
        axis=axis,
        verdict=line(level, reasons),
        level=level,
        reasons=reasons,
        n_scored=len(scored),
        n_total=len(records),
        position=where,
        repeats=again,
        nulls=nulls,
        properties=properties.biases,
        raw_win_rate=properties.raw,
        adjusted_win_rate=properties.adjusted,
        pair=properties.pair,
        scorers=scorers,
        judges=[other for other in others if other is not None],
        human=human,
    )
