"""Every method on the starter, one table: rewards, held-out judges, time, memory.

    python benchmarks/methods_table.py --out runs/methods [--write docs/methods.md]

Trains each shipped recipe in a process of its own (done runs are not done again), draws the same
test prompts from the same noise before and after with the recipe's ODE, and compares picture by
picture. `--write` puts the table between the markers in that file.
"""

import argparse
import json
import logging
from pathlib import Path
from typing import Any

import torch
from starter_runs import evaluate, mean, paired, train

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
REWARDS = ("composition", "ocr", "finish")
JUDGES = ("ocr-tesseract", "verifier")
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


def study(args: argparse.Namespace) -> dict[str, Any]:
    """All runs, by recipe; `base` is the untrained starter."""
    results = args.out / "methods.json"
    done: dict[str, Any] = json.loads(results.read_text("utf-8")) if results.is_file() else {}
    scorers = (*REWARDS, *args.judges)
    # One prompt set for all: gains are taken picture by picture.
    sets = [f"model.base={args.base}", "prompts.set=starter-ocr", *args.set]
    if "base" not in done:
        done["base"] = {"scores": evaluate(RECIPES[0], sets, None, scorers, args.images)}
    for recipe in args.recipes:
        if recipe not in done:
            cost = train(recipe, args.out / recipe, sets)
            scores = evaluate(recipe, sets, args.out / recipe, scorers, args.images)
            done[recipe] = {"cost": cost, "scores": scores}
            logging.info("%s: %s", recipe, {k: round(mean(v), 3) for k, v in scores.items()})
        results.write_text(json.dumps(done) + "\n", "utf-8")
    return done


def table(done: dict[str, Any], args: argparse.Namespace) -> str:
    """A row a recipe; gains over the base with their standard error."""
    scorers = (*REWARDS, *args.judges)
    base = done["base"]["scores"]
    lines = [
        f"| recipe | {' | '.join(scorers)} | s an epoch | peak MB |",
        "|---|" + "---|" * (len(scorers) + 2),
        "| base | " + " | ".join(f"{mean(base[name]):.3f}" for name in scorers) + " | | |",
    ]
    for recipe in args.recipes:
        cells = []
        for name in scorers:
            gain, error, count, total = paired(done[recipe]["scores"][name], base[name])
            note = "" if count == total else f" ({count}/{total})"
            cells.append(f"{gain:+.3f} ± {error:.3f}{note}")
        cost = done[recipe]["cost"]
        lines.append(
            f"| {recipe} | {' | '.join(cells)} | {cost['epoch_seconds']:.1f} | "
            f"{cost['peak_mb']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def write(text: str, path: Path) -> None:
    """Put the table between the markers of a page."""
    page = path.read_text("utf-8")
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    path.write_text(f"{head}{BEGIN}\n{text}{END}{tail}", "utf-8")


def main() -> None:
    """Train what is missing, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    parser.add_argument("--base", default="starter")
    parser.add_argument("--images", type=int, default=96)
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--judges", nargs="*", default=list(JUDGES))
    parser.add_argument("--set", nargs="*", default=[], help="a.b=value laid over every recipe")
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    text = table(study(args), args)
    if args.write is not None:
        write(text, args.write)
    print(text)


if __name__ == "__main__":
    main()
