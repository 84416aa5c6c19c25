"""Folders of images with ``metadata.jsonl``: matched by id, checked before any work."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from recast_eval.content.lines import filled_lines
from recast_eval.content.prompts import Prompt
from recast_eval.errors import DataError
from recast_eval.images import find_file, load_image
from recast_eval.records import ImageRecord

log = logging.getLogger(__name__)
METADATA: Final = "metadata.jsonl"
_OURS: Final = '{"schema_version":1,'  # how each line begins that we write
_FIELDS: Final = frozenset(ImageRecord.model_fields)


def read_metadata(folder: Path) -> list[ImageRecord]:
    """Read a folder's table, whoever wrote it. Columns that are not ours are left out.

    Raises:
        DataError: A line is broken, or an image of a prompt is listed twice.
    """
    path = folder / METADATA
    found: list[ImageRecord] = []
    seen: dict[tuple[str, int], int] = {}
    lines = list(filled_lines(path))
    for number, text in lines:
        if number == lines[-1][0] and _is_torn(path, text):
            log.warning("%s: dropped a torn last line of %d characters", path, len(text))
            break
        record = _line(path, number, text)
        earlier = seen.setdefault((record.prompt_id, record.sample), number)
        if earlier != number:
            raise DataError(
                f"prompt_id {record.prompt_id!r}, sample {record.sample} is on line {earlier} too: "
                'give one of them another "sample"',
                path=path,
                line=number,
            )
        found.append(record)
    if not found:
        raise DataError("lists no image: write one line an image", path=path)
    return found


def _is_torn(path: Path, last: str) -> bool:
    """Whether a crash of ours cut it: its head is ours, and no line feed ends it.

    The last line of a person's table may lack the line feed too, and counts.
    """
    if path.read_bytes().endswith(b"\n") or not (last.startswith(_OURS) or _OURS.startswith(last)):
        return False
    try:
        json.loads(last)
    except ValueError:
        return True
    return False


def _line(path: Path, number: int, text: str) -> ImageRecord:
    try:
        row = json.loads(text)
        if not isinstance(row, dict):
            raise TypeError("not an object")
        return ImageRecord.model_validate({k: v for k, v in row.items() if k in _FIELDS})
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}, in {text[:120]!r}"
    except (ValueError, TypeError, RecursionError) as error:
        problem = f"{error}, in {text[:120]!r}"
    raise DataError(
        f'{problem}; a line must read {{"file_name": ..., "prompt": ..., "prompt_id": ...}}',
        path=path,
        line=number,
    )


def check_images(folder: Path, records: Sequence[ImageRecord]) -> list[ImageRecord]:
    """Decode every image once, and fill in the digest of each.

    Raises:
        DataError: An image is missing, truncated, or not the recorded bytes; the first is named
            in full, the others are counted.
    """
    good: list[ImageRecord] = []
    bad: list[DataError] = []
    for record in records:
        try:
            loaded = load_image(find_file(folder, record.file_name), sha256=record.sha256)
        except DataError as error:
            bad.append(error)
            continue
        good.append(record.model_copy(update={"sha256": loaded.sha256}))
    if bad:
        more = f" ({len(bad)} of {len(records)} images are unusable)" if len(bad) > 1 else ""
        message = str(bad[0]).removeprefix(f"{bad[0].path}: ") + more
        raise DataError(message, path=bad[0].path)
    sizes = len({r.sha256 for r in good})
    if sizes < len(good):
        log.warning("%s: %d images, but only %d different files", folder, len(good), sizes)
    return good


def match_prompts(
    folder: Path, records: Sequence[ImageRecord], prompts: Sequence[Prompt], samples: int
) -> list[ImageRecord]:
    """The records that belong to a prompt set, by id; ids decide, never the order.

    Raises:
        DataError: A prompt has no image, or its text is another one.
    """
    by_key = {(r.prompt_id, r.sample): r for r in records}
    counts = [r.sample for r in records]
    wanted = min(samples, max(counts) + 1) if counts else samples
    missing = [
        f"{p.prompt_id} (sample {s})" if wanted > 1 else p.prompt_id
        for p in prompts
        for s in range(wanted)
        if (p.prompt_id, s) not in by_key
    ]
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise DataError(
            f"no image for {len(missing)} of {len(prompts) * wanted}: {shown}; images are matched "
            "by prompt_id, draw the missing ones or score fewer prompts",
            path=folder / METADATA,
        )
    found = []
    for prompt in prompts:
        for sample in range(wanted):
            record = by_key[prompt.prompt_id, sample]
            if record.prompt != prompt.prompt:
                raise DataError(
                    f"prompt_id {prompt.prompt_id!r} has the text {record.prompt!r}, the prompt "
                    f"set says {prompt.prompt!r}: one of them is another set",
                    path=folder / METADATA,
                )
            found.append(record.model_copy(update={"category": prompt.category}))
    return found


def prompts_of(folders: dict[str, list[ImageRecord]]) -> list[Prompt]:
    """The prompts of image folders that come without a prompt set.

    Raises:
        ValueError: Two folders give one id different texts.
    """
    found: dict[str, Prompt] = {}
    for records in folders.values():
        for r in records:
            prompt = Prompt(prompt_id=r.prompt_id, prompt=r.prompt, category=r.category or "other")
            first = found.setdefault(r.prompt_id, prompt)
            if first.prompt != r.prompt:
                raise ValueError(
                    f"prompt_id {r.prompt_id!r} is {first.prompt!r} in one image folder and "
                    f"{r.prompt!r} in another"
                )
    return list(found.values())
