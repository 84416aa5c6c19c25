"""Score collected images: batched, resumable, one typed outcome for each."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from recast_eval.console import progress
from recast_eval.errors import DataError
from recast_eval.images import find_file, load_image
from recast_eval.records import (
    Failed,
    ImageRecord,
    Scored,
    ScoreRecord,
    append_text,
    read_records,
    write_atomic,
)
from recast_eval.scorers.each import NOT_APPLICABLE, score_apart
from recast_eval.scoring.folder import EvalFolder
from recast_eval.scoring.roles import ChosenScorer

log = logging.getLogger(__name__)
Key = tuple[str, str, int, str]


@dataclass(slots=True)
class Tally:
    """What one model got from one scorer."""

    values: list[float] = field(default_factory=list)
    failed: int = 0
    not_applicable: int = 0

    @property
    def total(self) -> int:
        """Images that the scorer should have scored."""
        return len(self.values) + self.failed


@dataclass(slots=True)
class ScoreResult:
    """All outcomes, and how much of it was new."""

    records: list[ScoreRecord]
    computed: int
    reused: int

    def tallies(self) -> dict[tuple[str, str], Tally]:
        """(model, scorer) -> its outcomes, in order of first appearance."""
        found: dict[tuple[str, str], Tally] = {}
        for record in self.records:
            tally = found.setdefault((record.model, record.scorer), Tally())
            if isinstance(record.outcome, Scored):
                tally.values.append(record.outcome.value)
            elif record.outcome.reason == NOT_APPLICABLE:
                tally.not_applicable += 1
            else:
                tally.failed += 1
        return found


def score_images(
    folder: EvalFolder,
    images: Mapping[str, Sequence[ImageRecord]],
    scorers: Sequence[ChosenScorer],
    *,
    batch: int = 64,
) -> ScoreResult:
    """Score every image with every scorer, except where a valid score is on record.

    A recorded score is valid for the same image bytes and the same scorer card; failures
    are tried again. Records that are no longer valid leave ``scores.jsonl``. A scorer that a
    record calls a training metric stays one.

    Args:
        folder: The evaluation, with its images.
        images: Model -> images.
        scorers: With their roles.
        batch: Images a call.
    """
    read = read_records(folder.scores, ScoreRecord) if folder.scores.is_file() else []
    trained = {r.scorer for r in read if r.role == "train"}
    scorers = [replace(c, role="train") if c.name in trained else c for c in scorers]
    wanted = {
        (model, image.prompt_id, image.sample, chosen.name): (image, chosen)
        for model, rows in images.items()
        for chosen in scorers
        for image in rows
    }
    done = _valid(folder, read, wanted)
    reused = len(done)
    with progress() as bar:
        task = bar.add_task("score", total=len(wanted) - reused)
        for chosen in scorers:
            for model, rows in images.items():
                todo = [r for r in rows if (model, r.prompt_id, r.sample, chosen.name) not in done]
                for i in range(0, len(todo), batch):
                    part = todo[i : i + batch]
                    outcomes = _outcomes(folder, model, part, chosen)
                    new = [
                        _record(model, image, chosen, outcome)
                        for image, outcome in zip(part, outcomes, strict=True)
                    ]
                    append_text(folder.scores, "\n".join(r.model_dump_json() for r in new))
                    done |= {_key(r): r for r in new}
                    bar.advance(task, len(part))
    return ScoreResult([done[k] for k in wanted], len(wanted) - reused, reused)


def _key(record: ScoreRecord) -> Key:
    return record.model, record.prompt_id, record.sample, record.scorer


def _valid(
    folder: EvalFolder,
    read: Sequence[ScoreRecord],
    wanted: Mapping[Key, tuple[ImageRecord, ChosenScorer]],
) -> dict[Key, ScoreRecord]:
    """Recorded scores that still hold; the file is rewritten if others were in it."""
    kept: dict[Key, ScoreRecord] = {}
    for record in read:
        pair = wanted.get(_key(record))
        if pair is None:
            kept[_key(record)] = record  # of another call; not ours to drop
            continue
        image, chosen = pair
        outcome = record.outcome
        settled = isinstance(outcome, Scored) or outcome.reason == NOT_APPLICABLE
        same = record.image == image.sha256 and record.scorer_digest == chosen.scorer.card.digest()
        if settled and same:
            kept[_key(record)] = record.model_copy(update={"role": chosen.role})
    roles = {c.name: c.role for _, c in wanted.values()}
    kept = {k: r.model_copy(update={"role": roles.get(r.scorer, r.role)}) for k, r in kept.items()}
    if list(kept.values()) != list(read):
        log.info("scores.jsonl: %d of %d records still hold", len(kept), len(read))
        write_atomic(folder.scores, "".join(r.model_dump_json() + "\n" for r in kept.values()))
    return {k: r for k, r in kept.items() if k in wanted}


def _record(
    model: str, image: ImageRecord, chosen: ChosenScorer, outcome: Scored | Failed
) -> ScoreRecord:
    return ScoreRecord(
        model=model,
        prompt_id=image.prompt_id,
        sample=image.sample,
        image=image.sha256 or "",
        scorer=chosen.name,
        scorer_digest=chosen.scorer.card.digest(),
        role=chosen.role,
        outcome=outcome,
    )


def _outcomes(
    folder: EvalFolder, model: str, images: Sequence[ImageRecord], chosen: ChosenScorer
) -> list[Scored | Failed]:
    loaded: dict[int, np.ndarray] = {}
    outcomes: dict[int, Scored | Failed] = {}
    for i, image in enumerate(images):
        try:
            path = find_file(folder.images(model), image.file_name)
            loaded[i] = load_image(path, sha256=image.sha256).pixels
        except DataError as error:
            outcomes[i] = Failed(reason="image_error", detail=str(error))
    rows = list(loaded)
    pixels, prompts = list(loaded.values()), [images[i].prompt for i in rows]
    outcomes |= dict(zip(rows, score_apart(chosen.scorer, pixels, prompts), strict=True))
    return [outcomes[i] for i in range(len(images))]
