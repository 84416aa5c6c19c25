"""Every method on the starter, one table: rewards, held-out judges, time, memory.

    python benchmarks/methods_table.py --out runs/methods [--seeds 1 2 3] [--write docs/methods.md]

Trains each shipped recipe once a seed, as it is but for prompts and rewards, which are the same
for all, in a process of its own (done runs are not done again), draws the same test prompts from
the same noise before and after with an ODE of five steps, and compares picture by picture. The two
recipes that are made for more rewards and more minutes are cut to the others' pictures and steps.
`--write` puts the table between the markers in that file.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from starter_runs import (
    Results,
    base_cells,
    evaluate,
    gain_cell,
    pooled,
    start,
    study_parser,
    together,
    train,
    write_between,
)

from recast_train.config import load_plan
from recast_train.recipe_files import find_recipe

RECIPES = (
    "starter-static",
    "starter-marble",
    "starter-flow-grpo",
    "starter-flow-grpo-fast",
    "starter-mix-grpo",
    "starter-grpo-guard",
    "starter-tempflow",
    "starter-awm",
)
SAME = (
    "prompts.set=starter-ocr",
    "sampler={steps: 5, rollout_batch: 48}",
    "rewards={composition: 1, finish: 1}",
    "micro_batch=32",
)
CUT = ("groups={prompts_per_epoch: 8, group_size: 12}", "epochs=12")
LONGER = ("starter-static", "starter-marble")
REWARDS = ("composition", "finish")
JUDGES = ("ocr", "verifier")
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


def study(args: argparse.Namespace) -> dict[str, Any]:
    """All runs, by `recipe|seed`; `base` is the untrained starter."""
    results = Results(args.out / "methods.json")
    scorers = (*REWARDS, *args.judges)
    common = [f"model.base={args.base}", *SAME]

    def base() -> dict[str, Any]:
        return {"scores": evaluate(RECIPES[0], common, None, scorers, args.images)}

    def trained(recipe: str, seed: int) -> dict[str, Any]:
        out, cut = args.out / f"{recipe}-{seed}", CUT if recipe in LONGER else ()
        sets = [*common, *cut, f"seed={seed}", *args.set]
        cost = train(recipe, out, sets) | {"pictures": pictures(recipe, sets)}
        return {"cost": cost, "scores": evaluate(recipe, sets, out, scorers, args.images)}

    results.get("base", base)
    for seed in args.seeds:  # a whole table of one seed before the next
        for recipe in args.recipes:
            results.get(f"{recipe}|{seed}", partial(trained, recipe, seed))
    return results.found


def pictures(recipe: str, sets: Sequence[str]) -> int:
    """How many a run draws."""
    plan = load_plan(find_recipe(recipe), sets).recipe
    return plan.epochs * plan.groups.prompts_per_epoch * plan.groups.group_size


def table(done: dict[str, Any], args: argparse.Namespace) -> str:
    """A row a recipe: gains over the base pooled over the seeds; medians of costs."""
    scorers = ("all", *REWARDS, *args.judges)
    base = together(done["base"]["scores"], REWARDS)
    said = f", [least, most] of the {len(args.seeds)} seeds' means" if len(args.seeds) > 1 else ""
    lines = [
        f"Gain ± standard error over prompts{said}:",
        "",
        f"| recipe | {' | '.join(scorers)} | pictures | CPU s | peak MB |",
        "|---|" + "---|" * (len(scorers) + 3),
        f"| base | {base_cells(base, scorers)} | | | |",
    ]
    for recipe in args.recipes:
        runs = [done[f"{recipe}|{seed}"] for seed in args.seeds]
        cells = [
            gain_cell(
                pooled([together(run["scores"], REWARDS)[n] for run in runs], base[n]), len(runs)
            )
            for n in scorers
        ]
        costs = ("pictures", "cpu_seconds", "peak_mb")
        said = (f"{np.median([run['cost'][k] for run in runs]):.0f}" for k in costs)
        lines.append(f"| {' | '.join((recipe, *cells, *said))} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Train what is missing, compare, print."""
    parser = study_parser(__doc__, out=Path("runs/methods"), judges=JUDGES)
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    args = parser.parse_args()
    start(args)
    text = table(study(args), args)
    if args.write is not None:
        write_between(text, args.write, BEGIN, END)
    print(text)


if __name__ == "__main__":
    main()
