"""``evals/NAME/``: what it holds, and what may be added to it."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from recast_eval.errors import ConfigError
from recast_eval.records import (
    Manifest,
    ScoreRecord,
    hardware,
    package_versions,
    read_json,
    read_records,
    write_atomic,
    write_json,
)
from recast_eval.scoring.drawing import Sampler
from recast_eval.scoring.roles import family_of, trained_families
from recast_eval.scoring.sources import ModelSource, describe

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EvalFolder:
    """Paths of an evaluation."""

    root: Path

    @property
    def manifest(self) -> Path:
        """What made it."""
        return self.root / "manifest.json"

    @property
    def scores(self) -> Path:
        """One ``ScoreRecord`` a line."""
        return self.root / "scores.jsonl"

    def images(self, model: str) -> Path:
        """A model's images and their ``metadata.jsonl``."""
        return self.root / "images" / model


def recorded_models(root: Path) -> dict[str, dict[str, Any]]:
    """What an evaluation's manifest says of its models; nothing where there is none.

    Raises:
        DataError: It is damaged.
    """
    path = EvalFolder(root).manifest
    return dict(read_json(path, Manifest).facts.get("models", {})) if path.is_file() else {}


def open_folder(
    root: Path,
    sources: Sequence[ModelSource],
    samplers: Mapping[str, Sampler],
    *,
    seed: int,
    digests: Mapping[str, str],
    command: Sequence[str],
    facts: Mapping[str, Any] | None = None,
) -> EvalFolder:
    """Create an evaluation, or add to one whose images would come out the same.

    One scorer has one role in it: where a model that is added was trained on a scorer's family,
    scores on record become training metrics; none ever becomes held out again.

    Args:
        root: Its folder.
        sources: The models of this call; others that it holds stay.
        samplers: Model -> how its images are drawn.
        seed: Of the images.
        digests: Prompt set -> digest.
        command: What was called.
        facts: More for the manifest.

    Raises:
        ConfigError: It holds images of another model under one of these names, or of another
            seed or sampler.
        DataError: Its manifest is damaged.
    """
    folder = EvalFolder(root)
    models = {s.name: describe(s) for s in sources}
    for name, sampler in samplers.items():
        models[name]["sampler"] = asdict(sampler)
    old: Manifest | None = None
    if folder.manifest.is_file():
        old = read_json(folder.manifest, Manifest)
        _check_same(folder, old, models, seed)
    merged = _merged(old.facts if old else {}, {**(facts or {}), "models": models})
    root.mkdir(parents=True, exist_ok=True)
    manifest = Manifest(
        command=[_short(word) for word in command],
        versions=package_versions(),
        hardware=hardware(),
        seeds={"images": seed},
        digests={**(old.digests if old else {}), **digests},
        facts=merged,
    )
    _settle_scores(folder, merged)
    write_json(folder.manifest, manifest)
    return folder


def _merged(before: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of all calls: what is said a model or a scorer adds up, the rest is the last's."""
    facts = {**before, **new}
    for key in ("models", "roles", "scorers"):
        if key in facts:
            facts[key] = {**before.get(key, {}), **new.get(key, {})}
    families = trained_families(facts["models"])
    for name in facts.get("roles", {}):
        old = before.get("roles", {}).get(name)
        if old == "train" or family_of(name, facts.get("scorers", {})) in families:
            facts["roles"][name] = "train"
    return facts


def _settle_scores(folder: EvalFolder, facts: Mapping[str, Any]) -> None:
    """Scores of a family that one of the models was trained on are training metrics for all."""
    if not folder.scores.is_file():
        return
    read = read_records(folder.scores, ScoreRecord)
    families, cards = trained_families(facts["models"]), facts.get("scorers", {})
    names = {r.scorer for r in read if r.role == "heldout"}
    trained = {n for n in names if family_of(n, cards) in families}
    if trained:
        log.info("scores.jsonl: %s: trained on, no longer held out", ", ".join(sorted(trained)))
        rows = [r.model_copy(update={"role": "train"}) if r.scorer in trained else r for r in read]
        write_atomic(folder.scores, "".join(r.model_dump_json() + "\n" for r in rows))


def _short(word: str) -> str:
    return Path(word).name if Path(word).is_absolute() else word


def _drawn(model: Mapping[str, Any]) -> dict[str, Any]:
    """A model's sampler; before it was on record, every solver was Euler's."""
    sampler = model.get("sampler")
    return {"solver": "euler", **sampler} if sampler else {}


def _check_same(
    folder: EvalFolder, old: Manifest, models: Mapping[str, dict[str, Any]], seed: int
) -> None:
    remedy = "choose another --out, or delete that folder"
    problems = []
    if old.seeds.get("images", seed) != seed:
        problems.append(
            f"{folder.root}: its images were drawn with seed {old.seeds['images']}, not {seed}; "
            f"{remedy}"
        )
    for name, facts in models.items():
        before = old.facts.get("models", {}).get(name)
        if before is None:
            continue
        if before["digest"] != facts["digest"]:
            problems.append(
                f"{folder.images(name)}: holds images of another model called {name!r} "
                f"(digest {before['digest']}, now {facts['digest']}); {remedy}, or name it "
                "otherwise: NEW=PATH"
            )
        elif _drawn(before) != _drawn(facts):
            problems.append(
                f"{folder.images(name)}: drawn with {before.get('sampler')}, not with "
                f"{facts.get('sampler')}; {remedy}"
            )
    if problems:
        raise ConfigError(problems)
