"""``evals/NAME/``: what it holds, and what may be added to it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from recast_eval.errors import ConfigError
from recast_eval.records import Manifest, hardware, package_versions, read_json, write_json
from recast_eval.scoring.drawing import Sampler
from recast_eval.scoring.sources import ModelSource


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
        }
    return facts


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
    kept = dict(old.facts.get("models", {})) if old else {}
    root.mkdir(parents=True, exist_ok=True)
    manifest = Manifest(
        command=[_short(word) for word in command],
        versions=package_versions(),
        hardware=hardware(),
        seeds={"images": seed},
        digests={**(old.digests if old else {}), **digests},
        facts={**(old.facts if old else {}), **(facts or {}), "models": kept | models},
    )
    write_json(folder.manifest, manifest)
    return folder


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
