"""From a recipe's name to a finished run: what the command does around the loop."""

import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from recast_eval.console import progress
from recast_eval.errors import ConfigError
from recast_eval.records import MetricRecord, read_records
from recast_train import distributed
from recast_train.checkpoint import list_checkpoints, read_card
from recast_train.config import Plan, load_plan
from recast_train.loop import draw_pieces, train
from recast_train.parts import build_parts, build_policy, prompts_digest, sampler_facts
from recast_train.prompts import load_prompts
from recast_train.recipe_files import find_recipe
from recast_train.recipe_types import Recipe
from recast_train.rewards import build_scorers, unscored
from recast_train.run_folder import RunFolder
from recast_train.stopping import StopFlag, stop_flag

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    finished: bool
    """False if it was stopped and left a checkpoint."""
    unscored: tuple[str, ...]
    """What could not be scored since it began, a sentence a reward."""


def run_recipe(
    recipe: str,
    *,
    out: Path | None = None,
    overrides: Sequence[str] = (),
    resume: bool = False,
    device: str = "",
) -> Outcome:
    """Train; everything that can be wrong with the input is said before a model is loaded.

    Args:
        recipe: A file or a shipped name.
        out: Folder of the run; ``runs/NAME`` if None.
        overrides: ``a.b=value`` each.
        resume: Continue after the last checkpoint.
        device: Torch device; CUDA if there is one and none is named.

    Returns:
        Whether the run is finished, and what could not be scored.

    Raises:
        ConfigError: The recipe, the folder or the disk does not fit.
        DataError: Prompts or a checkpoint are broken.
        RecastError: Rewards fail so that an epoch has nothing to learn from.
    """
    plan = load_plan(find_recipe(recipe), overrides)
    if distributed.asked_to_shard() and not plan.policy.shards:
        raise ConfigError(
            [
                f"model.kind: {plan.policy.name} does not split its weights, and --use_fsdp would "
                "do nothing; launch it with torchrun, each process keeping a whole model"
            ]
        )
    prompts = load_prompts(plan.recipe.prompts)
    if len(prompts) < plan.recipe.groups.prompts_per_epoch:
        raise ConfigError(
            [
                f"groups.prompts_per_epoch: {plan.recipe.groups.prompts_per_epoch}, but "
                f"{plan.recipe.prompts.set} ({plan.recipe.prompts.split}) has {len(prompts)}"
            ]
        )
    folder = RunFolder(out or Path("runs") / plan.recipe.name)
    if _is_finished(plan, folder):
        log.info("%s is finished (%d epochs): nothing to do", folder.root, plan.recipe.epochs)
        return _outcome(folder, finished=True)
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    distributed.check_device(where)
    distributed.start(where)
    try:
        with distributed.together():
            check_processes(plan.recipe, distributed.world())
            own = distributed.own_device(where)
            alone = folder.held() if distributed.rank() == 0 else nullcontext()
            with stop_flag() as stop, alone:
                finished = _run(plan, folder, prompts, stop, resume=resume, device=own)
    finally:
        distributed.stop()
    return _outcome(folder, finished=finished)


def _outcome(folder: RunFolder, *, finished: bool) -> Outcome:
    # The file, not memory: a resumed run answers for its first part too.
    there = folder.metrics.is_file()  # the first process's, where machines share no disk
    records = read_records(folder.metrics, MetricRecord) if there else ()
    return Outcome(finished, tuple(unscored(records)))


def check_processes(recipe: Recipe, processes: int) -> None:
    """Every process must have an image of its own in whatever is drawn at once.

    Raises:
        ConfigError: There are more processes than that.
    """
    groups, batch = recipe.groups, recipe.sampler.rollout_batch
    images = groups.prompts_per_epoch * groups.group_size
    least = min(len(piece) for piece in draw_pieces(images, groups.group_size, batch))
    if least < processes:
        raise ConfigError(
            [
                f"{processes} processes, but {least} of the epoch's {images} images are drawn at "
                "once: use fewer processes, a larger sampler.rollout_batch or larger groups"
            ]
        )


def _is_finished(plan: Plan, folder: RunFolder) -> bool:
    """Whether the last checkpoint is the run's end; another recipe's run is not."""
    found = list_checkpoints(folder.checkpoints)
    if not found or not folder.same_recipe(plan):
        return False
    return read_card(found[-1]).step == plan.recipe.epochs * plan.recipe.steps_per_epoch


def _run(
    plan: Plan,
    folder: RunFolder,
    prompts: Sequence[str],
    stop: StopFlag,
    *,
    resume: bool,
    device: str,
) -> bool:
    if plan.recipe.threads:
        torch.set_num_threads(plan.recipe.threads)
    if distributed.rank() == 0:
        folder.prepare(plan, resume=resume)
    distributed.barrier()
    _foretell(plan)
    policy = build_policy(plan, device)
    scorers = build_scorers(plan.rewards, plan.recipe.rewards, device)
    parts = build_parts(plan, folder, policy, scorers, prompts)
    if distributed.rank() == 0:
        facts = {
            "sampler": sampler_facts(plan),
            "processes": distributed.world(),
            "sharded": distributed.sharded(),
        }
        folder.write_manifest(plan, prompts_digest(prompts), facts)
    began = time.monotonic()
    stop.training = True
    finished = train(parts, stop=stop.is_set, progress=_bar)
    log.info(
        "%s: %d of %d epochs, %.0f s, checkpoint %s",
        folder.root,
        parts.epoch,
        plan.recipe.epochs,
        time.monotonic() - began,
        list_checkpoints(folder.checkpoints)[-1].name,
    )
    return finished


def _foretell(plan: Plan) -> None:
    """Say what the run will need, before it loads anything large."""
    from recast_train.memory import describe, estimate

    processes = distributed.world()
    found = estimate(plan, processes=processes, sharded=distributed.sharded())
    if found is not None and distributed.rank() == 0:
        for line in describe(found, processes=processes, epochs=plan.recipe.epochs, tflops=300.0):
            log.info("%s", line)


def _bar(epochs: range) -> Iterable[int]:
    if distributed.rank():
        yield from epochs
        return
    with progress() as bar:
        yield from bar.track(epochs, description="epochs")
