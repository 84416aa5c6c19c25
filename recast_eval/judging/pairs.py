"""Which images meet: the same prompt and sample of two models, matched by id, never by position."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from recast_eval.errors import ConfigError, DataError
from recast_eval.images import find_file
from recast_eval.records import ImageRecord, read_records


@dataclass(frozen=True, slots=True)
class Picture:
    """One image of one model, or why it is not there."""

    model: str
    path: Path | None
    sha256: str | None = None
    """Of the file, if its table says."""
    problem: str = ""
    """Why it cannot be shown; empty if it can."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two images of one prompt; ``a`` is the model whose id sorts first.

    The order in which models are given is no part of a pair: given the other way round it is the
    same observation.
    """

    prompt_id: str
    sample: int
    prompt: str
    category: str | None
    a: Picture
    b: Picture


@dataclass(slots=True)
class ImageSet:
    """The images of one model."""

    model: str
    folder: Path
    records: dict[tuple[str, int], ImageRecord] = field(default_factory=dict)

    def picture(self, key: tuple[str, int]) -> Picture:
        """The image of (prompt_id, sample)."""
        record = self.records.get(key)
        if record is None:
            return Picture(self.model, None, problem=f"{self.model} has no image of it")
        try:
            path = find_file(self.folder, record.file_name)
        except DataError as error:
            return Picture(self.model, None, record.sha256, problem=str(error))
        return Picture(self.model, path, record.sha256)


def read_image_set(folder: Path, model: str) -> ImageSet:
    """Read an image folder by its ``metadata.jsonl``.

    Raises:
        DataError: There is no table, or two lines are the same prompt and sample.
    """
    table = folder / "metadata.jsonl"
    if not table.is_file():
        raise DataError(
            "no such table: one line an image is needed, with file_name, prompt and prompt_id",
            path=table,
        )
    found = ImageSet(model, folder)
    for line, record in enumerate(read_records(table, ImageRecord), start=1):
        key = (record.prompt_id, record.sample)
        if key in found.records:
            raise DataError(
                f"prompt {key[0]!r} sample {key[1]} is here twice; give each image of a prompt "
                "its own `sample`",
                path=table,
                line=line,
            )
        found.records[key] = record
    if not found.records:
        raise DataError("the table is empty", path=table)
    return found


def check_prompts(sets: Sequence[ImageSet]) -> None:
    """Models must have been given the same text for the same prompt id.

    Raises:
        ConfigError: They were not, a model comes twice, or no prompt is shared.
    """
    problems = []
    names = [s.model for s in sets]
    if len(sets) < 2:
        problems.append("a comparison needs at least two models")
    problems += [
        f"model {n!r} is given twice" for n in sorted({n for n in names if names.count(n) > 1})
    ]
    texts: dict[str, tuple[str, str]] = {}
    for images in sets:
        for record in images.records.values():
            text = unicodedata.normalize("NFC", record.prompt)
            first = texts.setdefault(record.prompt_id, (text, images.model))
            if first[0] != text and len(problems) < 20:
                problems.append(
                    f"prompt {record.prompt_id!r} is {first[0][:60]!r} for {first[1]} "
                    f"but {text[:60]!r} for {images.model}"
                )
    if len(sets) > 1 and not set.intersection(*(set(s.records) for s in sets)):
        problems.append("the models share no prompt id and sample; images are matched by id only")
    if problems:
        raise ConfigError(problems)


def make_pairs(sets: Sequence[ImageSet]) -> Iterator[Pair]:
    """Yield every pair of models on every image that either has, both orders to be asked later.

    A pair whose image is missing on one side is yielded too, with its problem: it is counted.
    """
    for left, right in combinations(sorted(sets, key=lambda s: s.model), 2):
        keys = sorted(set(left.records) | set(right.records))
        for key in keys:
            record = left.records.get(key) or right.records[key]
            yield Pair(
                prompt_id=key[0],
                sample=key[1],
                prompt=record.prompt,
                category=record.category,
                a=left.picture(key),
                b=right.picture(key),
            )
