"""From what a user names to image sets in one evaluation folder: reuse, draw, copy, score."""

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recast_eval.errors import ConfigError, DataError
from recast_eval.judging.offline import read_heldout_scores
from recast_eval.judging.pairs import ImageSet, read_image_set
from recast_eval.records import Manifest, read_json

if TYPE_CHECKING:
    from recast_eval.scoring import ModelSource

log = logging.getLogger(__name__)
_TABLE = "metadata.jsonl"
_LONGEST = 100  # names of models in an evaluation are shorter; longer ones no system takes


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to judge, as given on the command line."""

    models: Sequence[str]
    out: Path | None
    prompts: str | None = None
    split: str = "test"
    limit: int | None = None
    samples: int = 2
    seed: int = 0
    device: str | None = None
    scorers: Sequence[str] = ()
    """For the offline jury; empty is all that fit."""


def bring_models(
    wanted: Wanted, *, scores: bool, look_only: bool = False
) -> tuple[Path, list[ImageSet]]:
    """Make an image set of every model named, in one folder.

    Args:
        wanted: What was named.
        scores: Whether images that are new also get scores, for the offline jury.
        look_only: Draw, copy and write nothing; a model that would have to be drawn is an error.

    Returns:
        The evaluation's folder, and the sets in the order given.

    Raises:
        ConfigError: A name is none of: model of the folder, checkpoint, pipeline, image folder.
        DataError: Files are damaged.
    """
    from recast_eval.scoring import find_sources

    known = [m for m in wanted.models if _is_inside(wanted.out, m)]
    sources = (
        find_sources([m for m in wanted.models if m not in known])
        if len(known) < len(wanted.models)
        else []
    )
    by_given = {source.given: source for source in sources}
    names = [by_given[m].name if m in by_given else m for m in wanted.models]
    folder = wanted.out or Path("evals") / "-vs-".join(names)[:80]
    fresh = [source for source in sources if not _is_drawn(folder, source)]
    if look_only:
        return folder, [
            _look(folder, name, by_given.get(m))
            for m, name in zip(wanted.models, names, strict=True)
        ]
    if scores:
        bare = [s for s in sources if s.kind == "images" and not _has_scores(folder, s.name)]
        unscored = [s for s in sources if s in fresh or s in bare]
        if unscored:
            _score(wanted, folder, unscored)
    direct = {} if scores else _collect(wanted, folder, fresh)
    return folder, [direct.get(n) or read_image_set(folder / "images" / n, n) for n in names]


def _is_inside(out: Path | None, name: str) -> bool:
    plain = "/" not in name and "=" not in name and len(name) <= _LONGEST
    return out is not None and plain and (out / "images" / name / _TABLE).is_file()


def _is_drawn(folder: Path, source: "ModelSource") -> bool:
    """Whether the folder holds this very model's images."""
    if not (folder / "images" / source.name / _TABLE).is_file():
        return False
    if not (folder / "manifest.json").is_file():
        return False
    models = read_json(folder / "manifest.json", Manifest).facts.get("models", {})
    return bool(models.get(source.name, {}).get("digest") == source.digest)


def _has_scores(folder: Path, name: str) -> bool:
    return any(model == name for model, _, _ in read_heldout_scores(folder / "scores.jsonl"))


def _look(folder: Path, name: str, source: "ModelSource | None") -> ImageSet:
    if source is not None and source.kind == "images" and source.path is not None:
        return _given(source.path, name)
    if (folder / "images" / name / _TABLE).is_file():
        return read_image_set(folder / "images" / name, name)
    raise ConfigError([f"{name} has no images yet: draw them first with recast-eval score"])


def _given(folder: Path, name: str) -> ImageSet:
    """A folder that a person may have written, read as scoring reads it."""
    from recast_eval.scoring.image_folder import read_metadata

    records = {(r.prompt_id, r.sample): r for r in read_metadata(folder)}
    return ImageSet(name, folder, records)


def _score(wanted: Wanted, folder: Path, sources: Sequence["ModelSource"]) -> None:
    from recast_eval.scoring import EvalPlan, run_evaluation

    run_evaluation(
        EvalPlan(
            models=[source.given for source in sources],
            prompts=wanted.prompts,
            split=wanted.split,
            limit=wanted.limit,
            judges=wanted.scorers,
            samples=wanted.samples,
            seed=wanted.seed,
            out=folder,
            device=wanted.device,
            command=["recast-eval", *sys.argv[1:]],
        )
    )


def _collect(wanted: Wanted, folder: Path, sources: Sequence["ModelSource"]) -> dict[str, ImageSet]:
    """Draw from checkpoints and copy image folders; a folder with gaps is judged where it lies."""
    from recast_eval.scoring import (
        EvalPlan,
        choose_samplers,
        collect_images,
        load_prompts,
        note_sizes,
        open_folder,
    )

    direct: dict[str, ImageSet] = {}
    drawing = [source for source in sources if source.kind != "images"]
    for source in sources:
        if source.kind == "images" and source.path is not None:
            found = _given(source.path, source.name)
            if not _copy_whole(wanted, folder, source, found):
                direct[source.name] = found
    if drawing:
        plan = EvalPlan(
            models=[s.given for s in drawing],
            prompts=wanted.prompts,
            split=wanted.split,
            limit=wanted.limit,
        )
        prompts, digests = load_prompts(plan, drawing)
        samplers = choose_samplers(drawing, {})
        made = open_folder(
            folder, drawing, samplers, seed=wanted.seed, digests=digests, command=_command()
        )
        drawn = collect_images(
            made,
            drawing,
            prompts,
            samplers,
            samples=wanted.samples,
            seed=wanted.seed,
            device=wanted.device or "cpu",
        )
        note_sizes(made, drawn.images)
    return direct


def _copy_whole(wanted: Wanted, folder: Path, source: "ModelSource", found: ImageSet) -> bool:
    """Copy an image folder into the evaluation; False if it has gaps or damaged files."""
    from recast_eval.scoring import EvalPlan, collect_images, load_prompts, note_sizes, open_folder

    samples = max(sample for _, sample in found.records) + 1
    if samples > len(found.records):
        log.warning("%s is judged where it lies: it has gaps", source.name)
        return False
    try:
        prompts, digests = load_prompts(EvalPlan(models=[source.given]), [source])
        made = open_folder(
            folder, [source], {}, seed=wanted.seed, digests=digests, command=_command()
        )
        copied = collect_images(made, [source], prompts, {}, samples=samples, seed=wanted.seed)
        note_sizes(made, copied.images)
    except DataError as error:
        log.warning("%s is judged where it lies: %s", source.name, error)
        return False
    return True


def _command() -> list[str]:
    return ["recast-eval", *sys.argv[1:]]
