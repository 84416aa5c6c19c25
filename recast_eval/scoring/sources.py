"""What a model on the command line is: a checkpoint, a pipeline, or a folder of images."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from recast_eval.content import content
from recast_eval.errors import ConfigError, DataError, MissingError, reason, shorten
from recast_eval.images import find_file
from recast_eval.records import CheckpointCard, digest, file_sha256, read_json
from recast_eval.scoring.image_folder import METADATA, read_metadata

Kind = Literal["checkpoint", "pipeline", "images"]
STARTER: Final = "starter"
ADAPTER: Final = "pytorch_lora_weights.safetensors"
"""The adapter's file that diffusers loads."""
_CARD, _INDEX = "checkpoint.json", "model_index.json"
_HUB = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")


@dataclass(frozen=True, slots=True)
class ModelSource:
    """One model to be judged, found and checked."""

    name: str
    """Unique in an evaluation, safe as the name of a folder."""
    kind: Kind
    given: str
    """As it was named."""
    path: Path | None
    """Checkpoint, pipeline or image folder; None for a hub id."""
    base: str
    """Pipeline folder or hub id to draw with; empty for images."""
    digest: str
    """Names the weights, or the image folder's table and pictures, by content."""
    card: CheckpointCard | None = None

    @property
    def sampler(self) -> dict[str, Any]:
        """How the policy was drawn from in training; empty where nothing says."""
        return dict(self.card.sampler) if self.card else {}

    @property
    def families(self) -> frozenset[str]:
        """Families of the rewards that it was trained on."""
        return frozenset(self.card.rewards.values()) if self.card else frozenset()


@dataclass(slots=True)
class _Found:
    """A source before it has a name."""

    kind: Kind
    path: Path | None
    base: str
    stem: str
    digest: str
    card: CheckpointCard | None = field(default=None)


def find_sources(given: Sequence[str]) -> list[ModelSource]:
    """Find every model named on the command line, and check its files.

    Args:
        given: Each a checkpoint of ours, a run folder (its last checkpoint), ``starter``, a
            diffusers folder, a hub id, or an image folder with ``metadata.jsonl``. A name can
            be put first: ``NAME=PATH``.

    Raises:
        ConfigError: Something is none of these, or is named twice.
        DataError: A checkpoint's file is missing or changed.
    """
    problems: list[str] = []
    found: list[tuple[str, _Found]] = []
    for text in given:
        try:
            name, rest = split_name(text)
            source = _find(rest)
        except (ConfigError, MissingError) as error:
            problems += error.problems if isinstance(error, ConfigError) else [str(error)]
            continue
        except OSError as error:  # a name too long for the system, a file that may not be read
            problems.append(f"{shorten(str(error.filename or text))}: {reason(error)}")
            continue
        if any(source.digest == other.digest for _, other in found):
            problems.append(f"{text}: the same model as one named before; name it once")
        source.stem = name or source.stem
        found.append((text, source))
    if not given:
        problems.append("no model: name a checkpoint, a pipeline, a hub id or an image folder")
    if problems:
        raise ConfigError(problems)
    names = unique_names([s.stem for _, s in found])
    return [
        ModelSource(name, s.kind, text, s.path, s.base, s.digest, s.card)
        for name, (text, s) in zip(names, found, strict=True)
    ]


def describe(source: ModelSource) -> dict[str, Any]:
    """What a manifest says of a model; no absolute path."""
    facts: dict[str, Any] = {"kind": source.kind, "digest": source.digest}
    if source.card:
        base = Path(source.card.base_model)
        facts |= {
            "base": base.name if base.is_absolute() else source.card.base_model,
            "step": source.card.step,
            "recipe": source.card.recipe_name,
            "recipe_digest": source.card.recipe_digest,
            "rewards": source.card.rewards,
            "heldout": source.card.heldout,
            "allow_shared_family": source.card.allow_shared_family,
        }
    return facts


def split_name(text: str) -> tuple[str, str]:
    """``NAME=PATH`` in two; the name is empty where there is none, or the path holds the sign."""
    name, sign, rest = text.partition("=")
    return (name, rest) if sign and not Path(text).exists() else ("", text)


def unique_names(stems: Sequence[str]) -> list[str]:
    """Safe folder names, each once: ``a``, ``a-2``, ``a-3``. Case alone does not tell two apart."""
    taken: set[str] = set()
    names = []
    for stem in stems:
        base = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.")[:80] or "model"
        name, number = base, 1
        while name.lower() in taken:
            number += 1
            name = f"{base}-{number}"
        taken.add(name.lower())
        names.append(name)
    return names


def _find(text: str) -> _Found:
    if text == STARTER and not Path(text).is_dir():
        folder = content("train/starter")
        if not (folder / _INDEX).is_file():
            raise MissingError(f"{folder} holds no starter: build it with recast-train starter")
        return _Found("pipeline", folder, str(folder), STARTER, _pipeline_digest(folder))
    path = Path(text)
    if (path / _CARD).is_file():
        return _checkpoint(path, _step_name(path))
    if (path / "checkpoints").is_dir():
        steps = [p.parent for p in path.glob(f"checkpoints/step-*/{_CARD}")]
        steps.sort(key=lambda p: (len(p.name), p.name))  # step-1000000 is after step-999999
        if not steps:
            raise ConfigError([f"{text}: a run without a whole checkpoint; train it further"])
        return _checkpoint(steps[-1], path.resolve().name)
    if (path / METADATA).is_file():
        stem = path.resolve().name
        stem = path.resolve().parent.name if stem == "images" else stem
        return _Found("images", path, "", stem, _folder_digest(path))
    if (path / _INDEX).is_file():
        return _Found("pipeline", path, str(path), path.resolve().name, _pipeline_digest(path))
    if path.exists():
        raise ConfigError(
            [
                f"{text}: holds none of {_CARD}, checkpoints/, {_INDEX}, {METADATA}; name a "
                "checkpoint, a run, a diffusers pipeline or an image folder"
            ]
        )
    if _HUB.match(text):
        return _Found("pipeline", None, text, text.replace("/", "-"), digest("hub:" + text))
    raise ConfigError([f"{text}: no such folder, and no hub id (OWNER/NAME)"])


def _folder_digest(folder: Path) -> str:
    """Of the table and the pictures: the same prompts and file names are common to two models.

    Pictures are the folder's own files and those in folders below that the table names; one that
    is missing has no digest, and is named where it is needed.
    """
    pictures = sorted(p for p in folder.iterdir() if p.is_file() and p.name != METADATA)
    seen = [(p.name, file_sha256(p)) for p in pictures]
    below = {r.file_name for r in read_metadata(folder) if len(Path(r.file_name).parts) > 1}
    seen += [(name, _picture_digest(folder, name)) for name in sorted(below)]
    return digest(["images", file_sha256(folder / METADATA), seen])


def _picture_digest(folder: Path, name: str) -> str:
    try:
        return file_sha256(find_file(folder, name))
    except DataError:
        return ""


def _step_name(checkpoint: Path) -> str:
    parts = checkpoint.resolve().parts
    return f"{parts[-3]}-{parts[-1]}" if parts[-2:-1] == ("checkpoints",) else parts[-1]


def _checkpoint(path: Path, stem: str) -> _Found:
    card = verify_checkpoint(path)
    if card.policy != "sd3":
        raise ConfigError(
            [
                f"{path}: policy {card.policy!r} is not drawn here; draw its images with the "
                "trainer and name their folder (metadata.jsonl: file_name, prompt, prompt_id)"
            ]
        )
    if f"adapter/{ADAPTER}" not in card.files:
        raise DataError(
            "missing: without it the base model would be drawn", path=path / "adapter" / ADAPTER
        )
    if card.base_model == STARTER:
        folder = content("train/starter")
        base, base_digest = str(folder), _pipeline_digest(folder)
    else:
        local = Path(card.base_model)
        base = card.base_model
        base_digest = _pipeline_digest(local) if local.is_dir() else base
    return _Found(
        "checkpoint", path, base, stem, digest([file_sha256(path / _CARD), base_digest]), card
    )


def verify_checkpoint(path: Path) -> CheckpointCard:
    """Read ``checkpoint.json`` and compare every file that it lists with its SHA-256.

    Raises:
        DataError: A file is missing, changed, outside the folder, or not listed though it is used.
    """
    card = read_json(path / _CARD, CheckpointCard)
    root = path.resolve()
    for name, wanted in card.files.items():
        file = path / name
        try:
            inside, there = file.resolve().is_relative_to(root), file.is_file()
        except (OSError, RuntimeError, ValueError) as error:
            raise DataError(
                f"lists {shorten(name)!r}, which cannot be looked up ({reason(error)}): copy the "
                "checkpoint again",
                path=path / _CARD,
            ) from error
        if not inside:
            raise DataError(f"lists {name!r}, which is outside the checkpoint", path=path / _CARD)
        if not there:
            raise DataError("missing from the checkpoint: copy it again, whole", path=file)
        got = file_sha256(file)
        if got != wanted:
            raise DataError(
                f"SHA-256 is {got[:12]}..., checkpoint.json says {wanted[:12]}...: the file was "
                "changed; copy the checkpoint again, or use an earlier one",
                path=file,
            )
    unlisted = [
        p
        for p in sorted(path.glob("adapter/**/*"))
        if p.is_file() and p.relative_to(path).as_posix() not in card.files
    ]
    if unlisted:
        raise DataError("not listed in checkpoint.json: remove it", path=unlisted[0])
    return card


def _pipeline_digest(folder: Path) -> str:
    """Of all JSON and safetensors files; large weights by size and time, not by content."""
    parts = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        relative = file.relative_to(folder)
        if file.suffix not in (".json", ".safetensors", ".txt") or not file.is_file():
            continue
        if relative.parts[0] == "scorers":
            continue
        stat = file.stat()
        large = stat.st_size > 2**30
        mark = f"{stat.st_size}:{stat.st_mtime_ns}" if large else file_sha256(file)
        parts.update(f"{relative.as_posix()}\0{mark}\0".encode())
    return parts.hexdigest()[:16]
