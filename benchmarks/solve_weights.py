"""``solve_weights`` against POT's log-domain Sinkhorn, at the same tolerance.

Run: ``python benchmarks/solve_weights.py [--repeats 200]`` (needs POT, an extra of ``dev``).
Runs alternate and medians of processor time are compared: on a busy machine wall time would
punish the longer call, which is the one that is interrupted. The bar is an eighth of POT's.
"""

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import ot

from recast_train.credit import solve_weights
from recast_train.credit.solver import log_kernel

TOLERANCE = 1e-10
SIZES = ((4, 25), (8, 1000))


def alternate(
    first: Callable[[], object], second: Callable[[], object], repeats: int
) -> np.ndarray:
    """(2, repeats) processor seconds of both, in turn."""
    seconds = np.zeros((2, repeats))
    for i in range(repeats):
        for which, call in enumerate((first, second)):
            began = time.process_time()
            call()
            seconds[which, i] = time.process_time() - began
    return seconds


def compare(rewards: int, steps: int, repeats: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    gains = rng.gamma(1.0, size=(rewards, steps))
    budgets = np.arange(1.0, rewards + 1) / np.arange(1.0, rewards + 1).sum()
    columns, cost = np.full(steps, 1 / steps), -log_kernel(gains)

    def pot() -> np.ndarray:
        return ot.bregman.sinkhorn_log(
            budgets, columns, cost, 1.0, stopThr=TOLERANCE, numItermax=100_000
        )

    def ours() -> np.ndarray:
        return solve_weights(gains, budgets)

    difference = float(np.abs(pot() - ours()).max())
    assert difference < 1e-8, difference
    theirs_s, ours_s = np.median(alternate(pot, ours, repeats), axis=1)
    return {
        "rewards": rewards,
        "steps": steps,
        "pot_ms": 1e3 * float(theirs_s),
        "ours_ms": 1e3 * float(ours_s),
        "times_faster": float(theirs_s / ours_s),
        "largest_difference": difference,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    repeats = parser.parse_args().repeats
    found = [compare(k, t, repeats) for k, t in SIZES]
    for row in found:
        print(json.dumps(row))
    if min(row["times_faster"] for row in found) < 8:
        raise SystemExit("slower than an eighth of POT's time")


if __name__ == "__main__":
    main()
