"""Null tests: questions about two pictures that show the same.

They are asked like any other pair, by the same card at the same endpoint, but into a store of
their own (``audit/`` in the evaluation), so that no table of results ever holds them.
"""

import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from PIL import Image

from recast_eval.errors import ConfigError, DataError
from recast_eval.images import load_image
from recast_eval.judging.audit_measures import null_test
from recast_eval.judging.audit_records import NullTest
from recast_eval.judging.cards import JudgeCard, load_card
from recast_eval.judging.executor import Options
from recast_eval.judging.pairs import ImageSet
from recast_eval.judging.records import VerdictRecord
from recast_eval.judging.secrets import checked_url, is_loopback, is_openai, origin
from recast_eval.judging.workflow import (
    KEY_VARIABLE,
    VERDICTS,
    Bench,
    Endpoint,
    check_bench,
    judge,
)
from recast_eval.records import digest, read_records, write_atomic

FOLDER: Final = "audit"
SAME: Final = " (same image)"
RECODED: Final = " (re-encoded)"
JPEG_QUALITY: Final = 90


@dataclass(frozen=True, slots=True)
class Asked:
    """Whom to ask."""

    judge: str
    card: str
    model: str
    base_url: str
    api_key_env: str | None = None
    """As in ``Endpoint``."""


def judges_to_ask(
    verdicts: Sequence[VerdictRecord],
    names: Sequence[str],
    base_url: str | None,
    model: str | None,
) -> list[Asked]:
    """Everyone who was asked in this evaluation, or those named.

    Args:
        verdicts: Of the evaluation: they say which model answered at which endpoint.
        names: Judges as records call them (``CARD@MODEL``) or card names or paths; all if empty.
        base_url: Ask here instead.
        model: Ask this model instead.

    Raises:
        ConfigError: A judge named never answered here and no endpoint is given.
    """
    found: dict[str, Asked] = {}
    for v in verdicts:
        if v.judge_kind == "pairwise" and v.base_url and v.orders:
            card, _, asked = v.judge.partition("@")
            found[v.judge] = Asked(v.judge, card, asked or v.judge_model, v.base_url)
    chosen, problems = [], []
    for name in names or found:
        fits = [a for a in found.values() if name in (a.judge, a.card)]
        if not fits and base_url and model:
            fits = [Asked(f"{name}@{model}", name, model, base_url)]
        if not fits:
            problems.append(f"judge {name!r} never answered here: give --base-url and --model")
        chosen += fits
    if problems:
        raise ConfigError(problems)
    return [_to_ask(a, base_url, model) for a in chosen]


def _to_ask(found: Asked, base_url: str | None, model: str | None) -> Asked:
    card, url = load_card(found.card), checked_url(base_url or found.base_url)
    name = model or found.model
    known = base_url is not None or _is_known(card, url)
    return Asked(f"{card.name}@{name}", found.card, name, url, None if known else "")


def _is_known(card: JudgeCard, url: str) -> bool:
    """Whether the card's key may go to a URL that only a file of verdicts names.

    The file may be a stranger's, and its URL a juror's: a key goes where flags or this machine's
    own settings point.
    """
    home = os.environ.get(card.endpoint.base_url_env)
    if is_loopback(url) or (home and origin(checked_url(home)) == origin(url)):
        return True
    return is_openai(url) and card.endpoint.api_key_env == KEY_VARIABLE


def ask_nulls(
    folder: Path, images: ImageSet, asked: Sequence[Asked], count: int, options: Options
) -> None:
    """Ask each judge about ``count`` pictures and their copies; resumes like ``judge``.

    Args:
        folder: The evaluation.
        images: Of one model.
        asked: Whom.
        count: How many prompts; the choice depends on the prompt ids alone.
        options: How to run the judges; ``max_cost`` covers all that is asked here.

    Raises:
        ConfigError: A cost cap cannot be kept.
    """
    out = folder / FOLDER
    keys = sorted(images.records, key=lambda key: digest([key[0], key[1]]))[:count]
    some = ImageSet(images.model, images.folder, {key: images.records[key] for key in keys})
    same = ImageSet(images.model + SAME, images.folder, some.records)
    recoded = _recoded(some, out / "reencoded" / images.folder.name)
    benches = [
        Bench(
            (load_card(one.card),),
            Endpoint(one.base_url, one.model, one.api_key_env),
            (some, copy),
        )
        for one in asked
        for copy in (same, recoded)
    ]
    for bench in benches:
        check_bench(bench, options.max_cost, options.price)
    left = options.max_cost
    for bench in benches:
        done = judge(bench, out, replace(options, max_cost=left))
        if left is not None:
            left = max(0.0, left - sum(report.spent for report in done.reports.values()))


def _recoded(images: ImageSet, out: Path) -> ImageSet:
    """JPEG copies of the pictures, decoded by the loader that judges use."""
    out.mkdir(parents=True, exist_ok=True)
    found = ImageSet(images.model + RECODED, out)
    for key, record in images.records.items():
        picture = images.picture(key)
        name = f"{digest([*key])}.jpg"
        if picture.path is None:
            continue
        try:
            pixels = load_image(picture.path).pixels
        except DataError:
            continue  # the original side of the pair reports it
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=JPEG_QUALITY, subsampling=0)
        (out / name).write_bytes(buffer.getvalue())
        found.records[key] = record.model_copy(update={"file_name": name, "sha256": None})
    lines = [json.dumps(r.model_dump(), ensure_ascii=False) for r in found.records.values()]
    write_atomic(out / "metadata.jsonl", "".join(line + "\n" for line in lines))
    return found


def null_tests(folder: Path, judge_name: str, axis: str) -> list[NullTest]:
    """Read what was answered, if anything was asked."""
    path = folder / FOLDER / VERDICTS
    if not path.is_file():
        return []
    groups: dict[str, list[VerdictRecord]] = {}
    for record in read_records(path, VerdictRecord):
        if record.judge != judge_name or record.repeat:
            continue
        for ending, what in ((SAME, "same image"), (RECODED, "re-encoded image")):
            if record.model_a.endswith(ending) or record.model_b.endswith(ending):
                groups.setdefault(what, []).append(record)
    return [
        null_test(records, axis, what, _original(records[0])) for what, records in groups.items()
    ]


def _original(record: VerdictRecord) -> str:
    copy = record.model_b if record.model_b.endswith((SAME, RECODED)) else record.model_a
    return record.model_a if copy == record.model_b else record.model_b
