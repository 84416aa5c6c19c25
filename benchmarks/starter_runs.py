"""What studies on the starter share: a run as a process of its own, and pictures to score."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recast_eval.records import Scored
from recast_eval.scorers import SCORERS
from recast_train.checkpoint import list_checkpoints, load_checkpoint
from recast_train.config import load_plan
from recast_train.parts import build_policy
from recast_train.prompts import load_prompts
from recast_train.recipe_files import find_recipe
from recast_train.recipe_types import PromptsConfig


def train(recipe: str, out: Path, sets: Sequence[str]) -> dict[str, float]:
    """Run a recipe in a process of its own, or find that it was; wall, CPU and peak memory.

    Raises:
        RuntimeError: The command failed; what it said.
    """
    cost = out / "cost.json"
    if cost.is_file():
        found: dict[str, float] = json.loads(cost.read_text("utf-8"))
        return found
    start = "from recast_train.cli import main; main()"
    command = [sys.executable, "-c", start, "run", recipe, "--out", str(out)]
    command += [part for item in sets for part in ("--set", item)]
    if out.is_dir():
        command.append("--resume")
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(command, stdout=said, stderr=said)  # noqa: S603
        # wait4 alone tells the memory of this child, and not of the largest so far.
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            said.seek(0)
            raise RuntimeError(f"{' '.join(command)}: {said.read()[-2000:]}")
    found = {
        "wall_seconds": time.monotonic() - began,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "epoch_seconds": float(np.median(seconds_of(out))),
        "peak_mb": usage.ru_maxrss / 1024,
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
    recipe: str, sets: Sequence[str], out: Path | None, scorers: Sequence[str], images: int
) -> dict[str, list[float | None]]:
    """Score fixed-seed pictures of test prompts, one a prompt, drawn by the recipe's ODE.

    Args:
        recipe: Whose model and sampler.
        sets: Overrides.
        out: The run whose last trained weights draw; None is the base model.
        scorers: Names.
        images: Test prompts, from the first on.

    Returns:
        Value of each picture by scorer, None where it could not be scored.
    """
    plan = load_plan(find_recipe(recipe), sets)
    policy = build_policy(plan, "cpu")
    if out is not None:
        _, state = load_checkpoint(list_checkpoints(out / "checkpoints")[-1])
        policy.load_state(state["policy"])
        policy.update_old(0.0)
    prompts = load_prompts(PromptsConfig(set=plan.recipe.prompts.set, split="test"))[:images]
    generator = torch.Generator().manual_seed(20_260)
    rollout = policy.rollout(policy.encode(prompts), generator, {"solver": "euler"})
    pictures = policy.decode(rollout.x_0)
    return {
        name: [
            outcome.value if isinstance(outcome, Scored) else None
            for outcome in SCORERS.load(name).build()(pictures, prompts)
        ]
        for name in scorers
    }


def paired(
    after: Sequence[float | None], before: Sequence[float | None]
) -> tuple[float, float, int, int]:
    """Mean gain over the same prompts, its standard error, how many of how many."""
    pairs = [(a, b) for a, b in zip(after, before, strict=True) if a is not None and b is not None]
    gains = np.array([a - b for a, b in pairs])
    if not len(gains):
        return 0.0, 0.0, 0, len(after)
    error = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else 0.0
    return float(gains.mean()), error, len(gains), len(after)


def mean(values: Sequence[float | None]) -> float:
    """Mean of what was scored."""
    return float(np.mean([v for v in values if v is not None]))
