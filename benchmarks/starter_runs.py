"""What studies on the starter share: runs that are not done again, pictures to score, tables."""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from peak import peak_mb

from recast_eval.records import Scored, write_atomic
from recast_eval.scorers import SCORERS
from recast_train.checkpoint import list_checkpoints, load_checkpoint
from recast_train.config import load_plan
from recast_train.parts import build_policy
from recast_train.prompts import load_prompts
from recast_train.recipe_files import find_recipe
from recast_train.recipe_types import PromptsConfig


def study_parser(about: str, *, out: Path, judges: Sequence[str]) -> argparse.ArgumentParser:
    """The flags that studies of training runs share."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--base", default="starter")
    parser.add_argument("--images", type=int, default=96, help="test prompts, three pictures each")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--judges", nargs="*", default=list(judges))
    parser.add_argument("--set", nargs="*", default=[], help="a.b=value laid over every run")
    parser.add_argument("--write", type=Path, help="page that gets the table")
    return parser


def start(args: argparse.Namespace) -> None:
    """Make the folder, log to stderr, take one thread."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)


class Results:
    """The finished parts of a study, by key, in a JSON file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}

    def get(self, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What is there, or what ``make`` gives, which is then kept."""
        if key not in self.found:
            self.found[key] = make()
            write_atomic(self.path, json.dumps(self.found) + "\n")
            means = {k: round(mean(v), 3) for k, v in self.found[key]["scores"].items()}
            logging.info("%s: %s", key, means)
        part: dict[str, Any] = self.found[key]
        return part


_START = """
import atexit, sys
from pathlib import Path
from recast_train.cli import main
copy = Path(sys.argv.pop(1))
atexit.register(lambda: copy.write_text(Path("/proc/self/status").read_text("utf-8"), "utf-8"))
main()
"""
"""The command, which leaves a copy of its process status: who waits for it cannot read it."""


def train(recipe: str, out: Path, sets: Sequence[str]) -> dict[str, float]:
    """Run a recipe in a process of its own, or find that it was; wall, CPU and peak memory.

    Raises:
        RuntimeError: The command failed; what it said.
    """
    cost = out / "cost.json"
    if cost.is_file():
        found: dict[str, float] = json.loads(cost.read_text("utf-8"))
        return found
    status_file = out.with_name(f"{out.name}.status")
    command = [sys.executable, "-c", _START, str(status_file), "run", recipe, "--out", str(out)]
    command += [part for item in sets for part in ("--set", item)]
    if out.is_dir():
        command.append("--resume")
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(command, stdout=said, stderr=said)  # noqa: S603
        # wait4 alone tells the CPU time of this child, and not of all so far.
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            said.seek(0)
            raise RuntimeError(f"{' '.join(command)}: {said.read()[-2000:]}")
    found = {
        "wall_seconds": time.monotonic() - began,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "epoch_seconds": float(np.median(seconds_of(out))),
        "peak_mb": peak_mb(status_file),
    }
    cost.write_text(json.dumps(found) + "\n", "utf-8")
    return found


def metrics_of(out: Path) -> list[dict[str, Any]]:
    """A run's metric records."""
    lines = (out / "metrics.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def seconds_of(out: Path) -> list[float]:
    """Wall seconds of each epoch but the first, which loads and warms up."""
    last: dict[int, float] = {r["epoch"]: r["seconds"] for r in metrics_of(out)}
    values = list(last.values())
    return values[1:] or values


def evaluate(
    recipe: str,
    sets: Sequence[str],
    out: Path | None,
    scorers: Sequence[str],
    images: int,
    repeats: int = 3,
    *,
    prompt_sets: Sequence[str] = (),
) -> dict[str, list[float | None]]:
    """Score fixed-seed pictures of test prompts, drawn by the recipe's ODE.

    Args:
        recipe: Whose model and sampler.
        sets: Overrides.
        out: The run whose last trained weights draw; None is the base model.
        scorers: Names.
        images: Test prompts, from the first on.
        repeats: Pictures of each.
        prompt_sets: Where to take ``images`` test prompts of each from; empty is the recipe's.

    Returns:
        Mean value of each prompt's pictures by scorer, None where none could be scored.
    """
    plan = load_plan(find_recipe(recipe), sets)
    policy = build_policy(plan, "cpu")
    if out is not None:
        _, state = load_checkpoint(list_checkpoints(out / "checkpoints")[-1])
        policy.load_state(state["policy"])
        policy.update_old(0.0)
    listed = [
        prompt
        for name in prompt_sets or (plan.recipe.prompts.set,)
        for prompt in load_prompts(PromptsConfig(set=name, split="test"))[:images]
    ]
    prompts = [prompt for prompt in listed for _ in range(repeats)]
    generator = torch.Generator().manual_seed(20_260)
    rollout = policy.rollout(policy.encode(prompts), generator, {"solver": "euler"})
    pictures = policy.decode(rollout.x_0)
    found = {}
    for name in scorers:
        outcomes = SCORERS.load(name).build()(pictures, prompts)
        values = [o.value if isinstance(o, Scored) else None for o in outcomes]
        found[name] = [
            _mean_or_none(values[first : first + repeats])
            for first in range(0, len(values), repeats)
        ]
    return found


def _mean_or_none(values: Sequence[float | None]) -> float | None:
    there = [v for v in values if v is not None]
    return float(np.mean(there)) if there else None


class Pooled(NamedTuple):
    """Gains of several seeds, drawn from the same noise for the same prompts."""

    gain: float
    """Mean over pictures and seeds."""
    error: float
    """Standard error over the prompts, each one's gain averaged over the seeds."""
    low: float
    """The smallest mean gain of a seed."""
    high: float
    """The largest."""
    scored: int
    """Pictures that every seed and the base could be scored on."""
    total: int


def pooled(after: Sequence[Sequence[float | None]], before: Sequence[float | None]) -> Pooled:
    """Pool the gains of seeds over one base: the prompt is the unit, as seeds share the prompts.

    Args:
        after: Scores by seed, each in the order of ``before``.
        before: The base's scores.
    """
    return paired(after, [before] * len(after))


def paired(
    after: Sequence[Sequence[float | None]], before: Sequence[Sequence[float | None]]
) -> Pooled:
    """Pool the differences of two trainings, seed by seed; see ``pooled``."""
    gains = np.array([_values(seed) for seed in after]) - [_values(seed) for seed in before]
    total = gains.shape[1]
    gains = gains[:, ~np.isnan(gains).any(axis=0)]
    scored = gains.shape[1]
    if not scored:
        return Pooled(0.0, 0.0, 0.0, 0.0, 0, total)
    by_prompt, by_seed = gains.mean(axis=0), gains.mean(axis=1)
    error = float(by_prompt.std(ddof=1) / np.sqrt(scored)) if scored > 1 else 0.0
    low, high = float(by_seed.min()), float(by_seed.max())
    return Pooled(float(gains.mean()), error, low, high, scored, total)


def _values(scores: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if v is None else v for v in scores])


def together(
    scores: dict[str, list[float | None]], rewards: Sequence[str]
) -> dict[str, list[float | None]]:
    """With one more entry, ``all``: the mean of a prompt's rewards, where all were scored."""
    rows = zip(*(scores[name] for name in rewards), strict=True)
    means = [None if None in row else float(np.mean([v or 0.0 for v in row])) for row in rows]
    return {"all": means, **scores}


def gain_cell(found: Pooled, seeds: int) -> str:
    """``+0.123 ± 0.045 [+0.100, +0.150]``; the range of seeds where there are several."""
    if not found.scored:
        return f"not scored (0/{found.total})"
    text = f"{found.gain:+.3f} ± {found.error:.3f}"
    if seeds > 1:
        text += f" [{found.low:+.3f}, {found.high:+.3f}]"
    return text if found.scored == found.total else f"{text} ({found.scored}/{found.total})"


def base_cells(base: dict[str, list[float | None]], scorers: Sequence[str]) -> str:
    """The base's means, cell by cell."""
    return " | ".join(f"{mean(base[name]):.3f}" for name in scorers)


def write_between(text: str, path: Path, begin: str, end: str) -> None:
    """Put a table between the markers of a page.

    Raises:
        ValueError: The page does not have each marker once, in order.
    """
    page = path.read_text("utf-8")
    head, _, rest = page.partition(begin)
    _, _, tail = rest.partition(end)
    if page.count(begin) != 1 or page.count(end) != 1 or end in head:
        raise ValueError(f"{path}: must have {begin} and then {end}, each once")
    path.write_text(f"{head}{begin}\n{text}{end}{tail}", "utf-8")


def mean(values: Sequence[float | None]) -> float:
    """Mean of what was scored."""
    return float(np.mean([v for v in values if v is not None]))
