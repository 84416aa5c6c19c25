"""Steps a second of MARBLE, amortised and not, against the weighted sum: K = 4 rewards, N = 10.

    python benchmarks/marble.py [--base starter] [--cycles 3] [--threads 1] [--share 0.1]

Whole epochs of the shipped recipe `starter-marble` (rollout, rewards, update) on few images,
each kind in turn, so that a busy machine slows all alike. CPU seconds of the process, medians
over cycles of N epochs (un-amortised: single epochs, as all are alike). One JSON line; exit
status 1 if amortised MARBLE is below 0.97 of the weighted sum's speed or below 1.6 times the
un-amortised one's.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from recast_train.config import load_plan
from recast_train.loop import run_epoch
from recast_train.parts import Parts, build_parts, build_policy
from recast_train.prompts import load_prompts
from recast_train.recipe_files import find_recipe
from recast_train.rewards import build_scorers
from recast_train.run_folder import RunFolder

INTERVAL = 10
SMALL = [
    "groups={prompts_per_epoch: 2, group_size: 12}",
    "rewards={ocr: 1, finish: 1, composition: 1, tidy: 1}",
    "steps_per_epoch=1",
    "micro_batch=6",
    "checkpoint_every=100000",
]


def parts_of(kind: str, switches: str, base: str, folder: Path) -> Parts:
    """A run of one kind, ready for its first epoch."""
    changes = [*SMALL, f"model.base={base}", f"aggregator={{kind: {kind}{switches}}}"]
    plan = load_plan(find_recipe("starter-marble"), changes)
    home = RunFolder(folder)
    home.prepare(plan, resume=False)
    scorers = build_scorers(plan.rewards, plan.recipe.rewards, "cpu")
    return build_parts(
        plan, home, build_policy(plan, "cpu"), scorers, load_prompts(plan.recipe.prompts)
    )


def epochs(parts: Parts, count: int) -> float:
    """Mean CPU seconds an epoch."""
    began = time.process_time()
    for _ in range(count):
        run_epoch(parts, parts.epoch)
    return (time.process_time() - began) / count


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="starter")
    parser.add_argument("--cycles", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as scratch:
        kinds = {
            "weighted_sum": ("weighted-sum", ""),
            "amortised": (
                "marble",
                f", start: budgets, refresh_every: {INTERVAL}, gram_share: {args.share}",
            ),
            "unamortised": ("marble", ", refresh_every: 1, gram_share: 1.0"),
        }
        runs = {
            name: parts_of(kind, switches, args.base, Path(scratch) / name)
            for name, (kind, switches) in kinds.items()
        }
        for parts in runs.values():
            epochs(parts, INTERVAL if parts is runs["amortised"] else 1)  # caches, first refresh
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(args.cycles):
            for name, parts in runs.items():
                seconds[name].append(epochs(parts, 2 if name == "unamortised" else INTERVAL))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    found = {
        "rewards": 4,
        "interval": INTERVAL,
        "gram_share": args.share,
        "images": 24,
        "threads": args.threads,
        "cpu_seconds_an_epoch": {name: round(value, 3) for name, value in medians.items()},
        "amortised_over_weighted_sum": round(medians["weighted_sum"] / medians["amortised"], 3),
        "amortised_over_unamortised": round(medians["unamortised"] / medians["amortised"], 3),
    }
    print(json.dumps(found))
    fast = found["amortised_over_weighted_sum"] >= 0.97
    return 0 if fast and found["amortised_over_unamortised"] >= 1.6 else 1


if __name__ == "__main__":
    sys.exit(main())
