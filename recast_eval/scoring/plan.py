"""One call that scores models: everything is checked before anything is drawn."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recast_eval.content.prompts import SPLITS, Prompt, PromptSet, Split, load_prompt_set
from recast_eval.errors import ConfigError
from recast_eval.scoring.collect import Collected, check_folders, collect_images
from recast_eval.scoring.drawing import Sampler
from recast_eval.scoring.folder import EvalFolder, open_folder, recorded_models
from recast_eval.scoring.image_folder import prompts_of, read_metadata
from recast_eval.scoring.roles import choose_scorers
from recast_eval.scoring.scores import ScoreResult, score_images
from recast_eval.scoring.sizes import note_sizes
from recast_eval.scoring.sources import STARTER, ModelSource, find_sources, split_name

log = logging.getLogger(__name__)
_STARTER_DRAW = {"steps": 10, "guidance_scale": 1.0, "max_sequence_length": 8}
"""How the starter is drawn where no checkpoint says: as its recipes do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalPlan:
    """What ``recast-eval score`` was asked for."""

    models: Sequence[str]
    prompts: str | None = None
    """Set names or paths, separated by commas; None is the default of the models."""
    split: str = "test"
    limit: int | None = None
    """Prompts of each set that are used, evenly spread over it; None is all."""
    judges: Sequence[str] = ()
    heldout: Sequence[str] = ()
    samples: int = 2
    seed: int = 0
    out: Path | None = None
    batch: int = 32
    device: str | None = None
    sampler: Mapping[str, Any] = field(default_factory=dict)
    """Overrides of what the checkpoints say."""
    command: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Where it is and what it holds."""

    folder: EvalFolder
    images: Collected
    scores: ScoreResult
    notes: tuple[str, ...]

    @property
    def unscored(self) -> int:
        """Outcomes that should be there and are not: failed scores and images not drawn."""
        failed = sum(t.failed for t in self.scores.tallies().values())
        return failed + sum(map(len, self.images.failed.values()))


def run_evaluation(plan: EvalPlan) -> EvalResult:
    """Find models, prompts and scorers; draw what is missing; score what has no score.

    Raises:
        ConfigError: The plan is wrong; all that can be said at once is.
        DataError: A file of a checkpoint, image folder or prompt set is damaged.
        MissingError: A scorer that was asked for cannot run here.
    """
    _check_numbers(plan)
    sources = find_sources(plan.models)
    prompts, digests = load_prompts(plan, sources)
    samplers = choose_samplers(sources, plan.sampler)
    check_folders(sources, prompts, plan.samples)
    device = plan.device or _device()
    root = plan.out or Path("evals") / "-vs-".join(s.name for s in sources)[:80]
    scorers, notes = choose_scorers(
        sources,
        prompts,
        names=plan.judges,
        heldout=plan.heldout,
        device=device,
        recorded=recorded_models(root),
    )
    folder = open_folder(
        root,
        sources,
        samplers,
        seed=plan.seed,
        digests=digests,
        command=plan.command,
        facts={
            "prompts": plan.prompts or "default",
            "split": plan.split,
            "images_per_prompt": plan.samples,
            "num_prompts": len(prompts),
            "roles": {c.name: c.role for c in scorers},
            "scorers": {c.name: asdict(c.scorer.card) for c in scorers},
            "notes": notes,
        },
    )
    images = collect_images(
        folder,
        sources,
        prompts,
        samplers,
        samples=plan.samples,
        seed=plan.seed,
        batch=plan.batch,
        device=device,
    )
    note_sizes(folder, images.images)
    scores = score_images(folder, images.images, scorers)
    return EvalResult(folder, images, scores, tuple(notes))


def _check_numbers(plan: EvalPlan) -> None:
    problems = [
        f"{name}: must be 1 or more, got {value}"
        for name, value in (
            ("--images-per-prompt", plan.samples),
            ("--batch", plan.batch),
            ("--limit", 1 if plan.limit is None else plan.limit),
        )
        if value < 1
    ]
    if plan.split not in SPLITS:
        problems.append(f"--split {plan.split!r}: must be one of {', '.join(SPLITS)}")
    if problems:
        raise ConfigError(problems)


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def load_prompts(
    plan: EvalPlan, sources: Sequence[ModelSource]
) -> tuple[list[Prompt], dict[str, str]]:
    """The prompts of all sets asked for, and the digest of each set.

    Raises:
        ConfigError: None is named and none is obvious, or two sets share an id.
    """
    if plan.prompts is None and all(s.kind == "images" for s in sources):
        tables = {s.name: read_metadata(s.path) for s in sources if s.path}
        try:
            prompts = prompts_of(tables)
        except ValueError as error:
            raise ConfigError([f"{error}: name the right set with --prompts"]) from error
        own = PromptSet("images", "all", tuple(prompts), None)
        return list(_spread(own.prompts, plan.limit)), {"prompts/images": own.digest()}
    names = plan.prompts.split(",") if plan.prompts else _default_sets(sources)
    split: Split = next(s for s in SPLITS if s == plan.split)
    sets = [load_prompt_set(name.strip(), split) for name in names]
    prompts = [p for s in sets for p in _spread(s.prompts, plan.limit)]
    ids = [p.prompt_id for p in prompts]
    twice = sorted({i for i in ids if ids.count(i) > 1}) if len(set(ids)) < len(ids) else []
    if twice:
        raise ConfigError([f"--prompts: sets share prompt_id {', '.join(twice[:5])}; take one"])
    return prompts, {f"prompts/{s.name}/{s.split}": s.digest() for s in sets}


def _default_sets(sources: Sequence[ModelSource]) -> list[str]:
    if any(split_name(s.given)[1] == STARTER for s in sources) or any(
        s.card and s.card.base_model == STARTER for s in sources
    ):
        return ["starter-geneval", "starter-ocr"]
    raise ConfigError(["--prompts: name a set or a file; `recast-eval prompts` lists the shipped"])


def _spread(prompts: Sequence[Prompt], limit: int | None) -> Sequence[Prompt]:
    """``limit`` prompts, evenly spread, so that every category keeps its share."""
    if limit is None or limit >= len(prompts):
        return prompts
    return [prompts[i * len(prompts) // limit] for i in range(limit)]


def choose_samplers(
    sources: Sequence[ModelSource], overrides: Mapping[str, Any]
) -> dict[str, Sampler]:
    """How each model is drawn: as it was trained; a base model as the checkpoints beside it.

    Raises:
        ConfigError: A value is out of range.
    """
    trained = [Sampler.from_facts(s.sampler, dict(overrides)) for s in sources if s.card]
    if len(set(trained)) > 1:
        log.warning("the checkpoints were trained with different samplers; each keeps its own")
    found = {}
    for source in sources:
        if source.kind == "images":
            continue
        if source.card:
            found[source.name] = Sampler.from_facts(source.sampler, dict(overrides))
        elif trained:
            found[source.name] = trained[0]
        else:
            starter = split_name(source.given)[1] == STARTER
            facts = _STARTER_DRAW if starter else {}
            found[source.name] = Sampler.from_facts(facts, dict(overrides))
    return found
