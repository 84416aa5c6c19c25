"""Time of an epoch on the masked starter, and of RebRL's update against UniGRPO's.

    python benchmarks/rebrl.py [--base starter-masked] [--repeat 7] [--threads 2]

Updates of the two presets alternate on the same rollout, so that a busy machine slows both;
the ratio is the median over the pairs. Prints one JSON object.
"""

import argparse
import json
import statistics
import time
from typing import Any

import torch

from recast_train.config import make_plan, read_yaml
from recast_train.methods.rebrl import Rebrl, RebrlConfig
from recast_train.parts import build_policy
from recast_train.policies.base import Rollout
from recast_train.prompts import load_prompts
from recast_train.recipe_files import find_recipe
from recast_train.rewards import build_scorers, score


def update(method: Rebrl, policy: Any, rollout: Rollout, steps: int, micro: int) -> float:
    """Seconds (wall, cpu) of all forwards and backwards of one optimiser step."""
    generator = torch.Generator().manual_seed(0)
    advantages = torch.randn(steps, len(rollout.x_0), generator=generator)
    began = time.process_time()
    for work in method.works(rollout, steps, micro, generator):
        outputs = method.outputs(policy, rollout, work)
        loss = method.loss(outputs, advantages[work.steps, work.rows])
        ((loss.loss + method.penalty(outputs).loss) * work.weight).backward()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="starter-masked")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    plan = make_plan(read_yaml(find_recipe("starter-rebrl")), [f"model.base={args.base}"])
    recipe = plan.recipe
    policy = build_policy(plan, "cpu")
    scorers = build_scorers(plan.rewards, recipe.rewards, "cpu")
    prompts = load_prompts(recipe.prompts)[: recipe.groups.prompts_per_epoch]
    texts = [p for p in prompts for _ in range(recipe.groups.group_size)]
    condition, steps = policy.encode(texts), recipe.sampler.steps
    methods = {name: Rebrl(RebrlConfig(preset=name)) for name in ("unigrpo", "rebrl")}
    seconds: dict[str, list[float]] = {"draw": [], "score": [], "unigrpo": [], "rebrl": []}
    walls = []
    for turn in range(args.repeat + 1):
        wall = time.perf_counter()
        began = time.process_time()
        rollout = policy.rollout(condition, torch.Generator().manual_seed(turn), {})
        drawn = time.process_time()
        score(scorers, policy.decode(rollout.x_0), texts)
        scored = time.process_time()
        order = ["unigrpo", "rebrl"] if turn % 2 else ["rebrl", "unigrpo"]
        both = {n: update(methods[n], policy, rollout, steps, recipe.micro_batch) for n in order}
        wall = time.perf_counter() - wall
        if turn:  # the first turn warms up
            seconds["draw"].append(drawn - began)
            seconds["score"].append(scored - drawn)
            for name, value in both.items():
                seconds[name].append(value)
            walls.append(wall * (1 - both["unigrpo"] / (time.process_time() - began)))
    medians = {name: round(statistics.median(values), 3) for name, values in seconds.items()}
    pairs = zip(seconds["rebrl"], seconds["unigrpo"], strict=True)
    found = {
        "images": len(texts),
        "stages": steps,
        "threads": args.threads,
        "cpu_seconds": medians,
        "epoch_cpu_seconds": round(medians["draw"] + medians["score"] + medians["rebrl"], 3),
        "epoch_wall_seconds": round(statistics.median(walls), 3),
        "rebrl_over_unigrpo": round(statistics.median(a / b for a, b in pairs), 4),
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
