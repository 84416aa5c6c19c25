"""Bring the images of several models together: draw what is missing, copy what is given."""

import io
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from recast_eval.console import progress
from recast_eval.content.prompts import Prompt
from recast_eval.errors import ConfigError, DataError
from recast_eval.images import find_file
from recast_eval.records import (
    ImageRecord,
    append_record,
    file_sha256,
    part_path,
    read_records,
)
from recast_eval.scoring.drawing import (
    Draw,
    Job,
    Sampler,
    load_drawer,
    plan_blocks,
    to_bytes,
)
from recast_eval.scoring.folder import EvalFolder
from recast_eval.scoring.image_folder import METADATA, check_images, match_prompts, read_metadata
from recast_eval.scoring.sources import ModelSource

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Collected:
    """Images of every model, matched by (prompt_id, sample)."""

    images: dict[str, list[ImageRecord]] = field(default_factory=dict)
    """Model -> its images; files lie in ``images/MODEL``."""
    drawn: int = 0
    copied: int = 0
    reused: int = 0
    failed: dict[str, list[Job]] = field(default_factory=dict)
    """Model -> images that it could not draw (not finite)."""


def check_folders(
    sources: Sequence[ModelSource], prompts: Sequence[Prompt], samples: int
) -> dict[str, list[ImageRecord]]:
    """Check every image folder, before anything is drawn.

    Raises:
        DataError: An image is missing, truncated, changed, or of another prompt.
    """
    found = {}
    for source in sources:
        if source.kind == "images" and source.path is not None:
            records = match_prompts(source.path, read_metadata(source.path), prompts, samples)
            found[source.name] = check_images(source.path, records)
    return found


def collect_images(
    folder: EvalFolder,
    sources: Sequence[ModelSource],
    prompts: Sequence[Prompt],
    samplers: Mapping[str, Sampler],
    *,
    samples: int,
    seed: int,
    batch: int = 32,
    device: str = "cpu",
    load: Callable[..., Draw] = load_drawer,
) -> Collected:
    """Bring the images of all models together under ``folder``; resumes, repeats nothing.

    Args:
        folder: The evaluation.
        sources: Models from ``find_sources``.
        prompts: Of all of them.
        samplers: How each that draws is drawn from.
        samples: Images a prompt.
        seed: With prompt id and sample it decides an image's noise.
        batch: Images drawn at once; fixed by the plan, so that stopping changes nothing.
        device: Where pipelines run.
        load: What loads a drawer.

    Raises:
        DataError: An image folder is incomplete or damaged; found before anything is drawn.
        ConfigError: A pipeline does not load or fails.
    """
    given = check_folders(sources, prompts, samples)
    out = Collected()
    for source in sources:
        target = folder.images(source.name)
        target.mkdir(parents=True, exist_ok=True)
        if source.kind == "images" and source.path is not None:
            out.images[source.name] = _copy(source.path, target, given[source.name], out)
            continue
        blocks = plan_blocks(prompts, samples, batch)
        have = _have(target, {(j.key(), j.sample): j for block in blocks for j in block})
        out.reused += len(have)
        todo = [b for b in blocks if any((j.key(), j.sample) not in have for j in b)]
        if todo:
            sampler = samplers[source.name]
            draw = load(source, sampler, seed=seed, device=device)
            _draw(source.name, target, todo, have, draw, seed, out)
        order = [(j.key(), j.sample) for block in blocks for j in block]
        out.images[source.name] = [have[key] for key in order if key in have]
    return out


def _have(target: Path, jobs: Mapping[tuple[str, int], Job]) -> dict[tuple[str, int], ImageRecord]:
    path = target / METADATA
    found: dict[tuple[str, int], ImageRecord] = {}
    for record in read_records(path, ImageRecord) if path.is_file() else []:
        key = (record.prompt_id, record.sample)
        job = jobs.get(key)
        if job is None:
            continue
        if record.prompt != job.prompt.prompt:
            raise DataError(
                f"prompt_id {record.prompt_id!r} was drawn for {record.prompt!r}, now it is "
                f"{job.prompt.prompt!r}: choose another --out",
                path=path,
            )
        file = target / record.file_name
        if record.file_name != job.file_name() or not file.is_file():
            continue
        if file_sha256(file) != record.sha256:
            log.warning("%s: not the recorded bytes; drawn again", file)
            continue
        found[key] = record
    return found


def _draw(
    model: str,
    target: Path,
    blocks: Sequence[Sequence[Job]],
    have: dict[tuple[str, int], ImageRecord],
    draw: Draw,
    seed: int,
    out: Collected,
) -> None:
    with progress() as bar:
        task = bar.add_task(f"draw {model}", total=sum(map(len, blocks)))
        for block in blocks:
            try:
                pixels = draw(block)
            except (RuntimeError, ValueError, TypeError) as error:
                raise ConfigError(
                    [f"{model}: drawing failed ({error}); try a smaller --batch or other settings"]
                ) from error
            for job, image in zip(block, to_bytes(pixels), strict=True):
                bar.advance(task)
                if (job.key(), job.sample) in have:
                    continue
                if image is None:
                    log.warning("%s: %s came out not finite", model, job.file_name())
                    out.failed.setdefault(model, []).append(job)
                    continue
                have[job.key(), job.sample] = _save(target, job, image, seed)
                out.drawn += 1


def _save(target: Path, job: Job, pixels: np.ndarray, seed: int) -> ImageRecord:
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    path = target / job.file_name()
    _write(path, data.getvalue())
    record = ImageRecord(
        file_name=path.name,
        prompt=job.prompt.prompt,
        prompt_id=job.prompt.prompt_id,
        sample=job.sample,
        seed=job.seed(seed),
        sha256=file_sha256(path),
        category=job.prompt.category,
    )
    append_record(target / METADATA, record)
    return record


def _copy(
    source: Path, target: Path, records: Sequence[ImageRecord], out: Collected
) -> list[ImageRecord]:
    path = target / METADATA
    old = {r.file_name: r for r in (read_records(path, ImageRecord) if path.is_file() else [])}
    found = []
    for record in records:
        prompt = Prompt(prompt_id=record.prompt_id, prompt=record.prompt)
        name = Path(Job(prompt, record.sample).file_name()).stem + Path(record.file_name).suffix
        kept = record.model_copy(update={"file_name": name})
        found.append(kept)
        copy = target / name
        if old.get(name) == kept and copy.is_file() and file_sha256(copy) == kept.sha256:
            out.reused += 1
            continue
        _write(copy, find_file(source, record.file_name).read_bytes())
        if old.get(name) != kept:
            append_record(path, kept)
        out.copied += 1
    return found


def _write(path: Path, data: bytes) -> None:
    part = part_path(path)
    part.write_bytes(data)
    part.replace(path)
