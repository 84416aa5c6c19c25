"""Methods x budgets x seeds: plan a sweep's runs, then start each as its own process."""

import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from recast_eval.errors import ConfigError, MissingError
from recast_train.children import stopped_with_us
from recast_train.config import load_plan, read_yaml
from recast_train.recipe_files import find_recipe
from recast_train.recipe_types import truths_for_numbers

log = logging.getLogger(__name__)

Engine = Literal["local", "ray"]
_START: Final = "from recast_train.cli import main; main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A sweep file: every variant with every budget and every seed."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str
    base: str
    """A recipe: a file beside the sweep file, or a shipped name."""
    variants: dict[str, dict[str, Any]] = field(default_factory=lambda: {"base": {}})
    """Name -> overrides ``a.b: value`` laid over the base."""
    budgets: tuple[dict[str, float], ...] = ()
    """Reward -> budget, one entry a point; none keeps the recipe's."""
    seeds: tuple[int, ...] = (1, 2, 3)
    set: dict[str, Any] = field(default_factory=dict)
    """Overrides of every run."""


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run: its folder's name and what is laid over the recipe."""

    name: str
    overrides: tuple[str, ...]


def read_sweep(path: Path) -> tuple[Sweep, str]:
    """Read a sweep file; returns it and the recipe that it starts from.

    Raises:
        ConfigError: The file does not describe a sweep, or one of its runs is no valid recipe.
    """
    values = read_yaml(path)
    if truths := list(truths_for_numbers(Sweep, values)):
        raise ConfigError([f"{path}: {p}" for p in truths])
    try:
        sweep = TypeAdapter(Sweep).validate_python(values)
    except ValidationError as error:
        raise ConfigError(
            [f"{path}: {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        ) from error
    beside = path.parent / sweep.base
    recipe = str(beside) if beside.is_file() else sweep.base
    runs = plan_runs(sweep)
    problems = [f"{path}: {p}" for p in _name_problems(sweep, runs)]
    for run in runs:
        try:
            load_plan(find_recipe(recipe), run.overrides)
        except ConfigError as error:
            problems += [f"{path}: run {run.name}: {p}" for p in error.problems]
    if problems:
        raise ConfigError(problems)
    return sweep, recipe


def _name_problems(sweep: Sweep, runs: Sequence[SweepRun]) -> Iterator[str]:
    """Runs that would not get a folder of their own inside the sweep's."""
    if not runs:
        yield "plans no run: seeds and variants need one entry or more"
    for name in dict.fromkeys([sweep.name, *(run.name for run in runs)]):
        if name.startswith((".", "-")) or set(name) & set("/\\\0"):
            yield f"{name!r} is a folder's name: no / or \\ in it, no . or - before it"
    planned = Counter(run.name.casefold() for run in runs)
    for name in dict.fromkeys(run.name for run in runs):
        if (times := planned[name.casefold()]) > 1:
            yield (
                f"run {name} is planned {times} times: seeds, variants, or budgets in their first "
                "six digits are the same"
            )


def plan_runs(sweep: Sweep) -> list[SweepRun]:
    """All runs, seeds fastest, so that each comparison is complete as early as can be."""
    runs = []
    for budgets in sweep.budgets or ({},):
        point = "-".join(f"{k}{v:g}" for k, v in budgets.items())
        for seed in sweep.seeds:
            for variant, changes in sweep.variants.items():
                values = {
                    **sweep.set,
                    **{f"rewards.{k}.budget": v for k, v in budgets.items()},
                    **changes,
                    "seed": seed,
                }
                name = "--".join(filter(None, (variant, point, f"seed{seed}")))
                overrides = ("name=" + name, *(f"{k}={_text(v)}" for k, v in values.items()))
                runs.append(SweepRun(name, overrides))
    return runs


def _text(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True).strip().removesuffix("\n...")


def run_sweep(
    runs: Sequence[SweepRun],
    recipe: str,
    out: Path,
    *,
    engine: Engine,
    workers: int,
    processes: int = 1,
) -> dict[str, int]:
    """Run all that are not finished; returns each run's exit status.

    Args:
        runs: From ``plan_runs``.
        recipe: What each starts from.
        out: Folder that gets a folder a run; what is there is resumed.
        engine: ``local`` processes on this machine, or tasks on a Ray cluster that sees ``out``.
        workers: Runs at a time (local).
        processes: Of each run, a GPU each, started as ``torchrun`` does.

    Raises:
        MissingError: Ray was asked for and is not installed.
    """
    commands = {run.name: _command(run, recipe, out, processes) for run in runs}
    start = _ray if engine == "ray" else _local(workers)
    statuses = {}
    for name, status in start(commands):
        log.info("%s: %s", name, "done" if status == 0 else f"exit status {status}")
        statuses[name] = status
    return statuses


def _command(run: SweepRun, recipe: str, out: Path, processes: int) -> list[str]:
    folder = out / run.name
    resume = ["--resume"] if folder.exists() else []
    sets = [part for o in run.overrides for part in ("--set", o)]
    start = ["-c", _START]
    if processes > 1:
        start = ["-m", "torch.distributed.run", "--standalone"]
        start += [f"--nproc_per_node={processes}", "-m", "recast_train"]
    return [sys.executable, *start, "run", recipe, "--out", str(folder), *sets, *resume]


def _call(command: list[str]) -> int:
    return subprocess.run(command, check=False).returncode  # noqa: S603 - our own command line


def _local(workers: int) -> Callable[[dict[str, list[str]]], Iterator[tuple[str, int]]]:
    def start(commands: dict[str, list[str]]) -> Iterator[tuple[str, int]]:
        with stopped_with_us() as children, ThreadPoolExecutor(workers) as pool:
            yield from zip(commands, pool.map(children.call, commands.values()), strict=True)

    return start


def _ray(commands: dict[str, list[str]]) -> Iterator[tuple[str, int]]:
    try:
        import ray
    except ImportError as error:
        raise MissingError("--engine ray needs Ray: pip install 'recast-eval[sweep]'") from error
    ray.init(ignore_reinit_error=True)
    task = ray.remote(_call)
    pending = {name: task.remote(command) for name, command in commands.items()}
    for name, reference in pending.items():
        yield name, int(ray.get(reference))
