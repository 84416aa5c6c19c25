"""What online credit costs: epochs of the starter with it and without, alternating.

Run: ``python benchmarks/online_credit.py [--epochs 20] [--base FOLDER]``. Two runs of the same
recipe live side by side in one process and take turns epoch by epoch, so that load on the
machine meets both. Bars: 1.03 times the median epoch's wall time and 1.05 times the peak
memory, each run measured in a process of its own. What the refreshes themselves cost is
printed beside, spread over all epochs (``amortised``): the median does not see them.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from peak import peak_mb

STATIC = ["credit={kind: static}"]
ONLINE = ["credit={kind: recast-online}"]


def build(overrides: list[str], folder: Path) -> Any:
    import torch

    from recast_train.config import load_plan
    from recast_train.parts import build_parts, build_policy
    from recast_train.prompts import load_prompts
    from recast_train.recipe_files import find_recipe
    from recast_train.rewards import build_scorers
    from recast_train.run_folder import RunFolder

    torch.set_num_threads(1)
    plan = load_plan(find_recipe("starter-static"), [*overrides, "samples_every=0"])
    run = RunFolder(folder)
    run.prepare(plan, resume=False)
    scorers = build_scorers(plan.rewards, plan.recipe.rewards, "cpu")
    prompts = load_prompts(plan.recipe.prompts)
    return build_parts(plan, run, build_policy(plan, "cpu"), scorers, prompts)


def times(epochs: int, extra: list[str], online: list[str]) -> dict[str, Any]:
    from recast_train.loop import run_epoch

    with tempfile.TemporaryDirectory() as place:
        runs = [
            build([*extra, *credit], Path(place) / name)
            for name, credit in (("static", STATIC), ("online", online))
        ]
        wall, cpu = np.zeros((2, epochs)), np.zeros((2, epochs))
        for epoch in range(epochs):
            for which in (0, 1) if epoch % 2 else (1, 0):
                began, used = time.perf_counter(), time.process_time()
                run_epoch(runs[which], epoch)
                wall[which, epoch] = time.perf_counter() - began
                cpu[which, epoch] = time.process_time() - used
    return {
        "epochs": epochs,
        "median_epoch_s": np.median(wall, axis=1).round(3).tolist(),
        "median_wall_ratio": float(np.median(wall[1]) / np.median(wall[0])),
        "amortised_wall_ratio": float(wall[1].sum() / wall[0].sum()),
        "cpu_s_an_epoch": cpu.mean(axis=1).round(3).tolist(),
        "median_cpu_ratio": float(np.median(cpu[1]) / np.median(cpu[0])),
        "amortised_cpu_ratio": float(cpu[1].sum() / cpu[0].sum()),
        "cpu_online": cpu[1].round(2).tolist(),
    }


def peak(overrides: list[str], epochs: int, queue: Any) -> None:
    from recast_train.loop import run_epoch

    with tempfile.TemporaryDirectory() as place:
        parts = build(overrides, Path(place) / "run")
        for epoch in range(epochs):
            run_epoch(parts, epoch)
    queue.put(peak_mb())


def memory(extra: list[str], online: list[str]) -> dict[str, float]:
    found = []
    context = multiprocessing.get_context("spawn")
    for credit in (STATIC, online):
        queue = context.Queue()
        child = context.Process(target=peak, args=([*extra, *credit], 2, queue))
        child.start()
        found.append(queue.get())
        child.join()
    return {
        "static_mb": found[0],
        "online_mb": found[1],
        "memory_ratio": found[1] / found[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--base", default="starter", help="model folder")
    parser.add_argument("--online", default=ONLINE[0], help="the online run's credit block")
    parser.add_argument("--set", action="append", default=[], help="for both runs")
    given = parser.parse_args()
    extra = [f"model.base={given.base}", *given.set]
    found = {**times(given.epochs, extra, [given.online]), **memory(extra, [given.online])}
    print(json.dumps(found))
    if found["median_wall_ratio"] > 1.03 or found["memory_ratio"] > 1.05:
        raise SystemExit("online credit costs more than 3 % of an epoch or 5 % memory")


if __name__ == "__main__":
    main()
