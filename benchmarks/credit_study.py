"""Does spending budgets where feedback is informative help? ReCAST, static, and the controls.

    python benchmarks/credit_study.py --out runs/credit [--seeds 1 2 3] [--write PAGE]

Trains the demo's recipe once a credit and seed, all on the same prompts, noise and timestep
orders, and compares the same test pictures before and after. `--profile` is what `recast` and
its control `reversed` take W from; it is measured if there is none (`benchmarks/gain_curves.py`
and `recast-train profile` make them). Done runs are not done again.
"""

import argparse
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from starter_runs import (
    Pooled,
    Results,
    base_cells,
    evaluate,
    gain_cell,
    metrics_of,
    paired,
    pooled,
    start,
    study_parser,
    together,
    train,
    write_between,
)

from recast_train.profiling import ProfileSettings, run_profile

REWARDS = ("composition", "ocr", "alignment", "finish")
JUDGES = ("verifier", "ocr-tesseract", "alignment-heldout", "card-distance")
PROMPTS = ("starter-geneval", "starter-ocr")
BEGIN, END = "<!-- credit study: begin -->", "<!-- credit study: end -->"


CREDITS = {
    "static": "{{kind: static}}",
    "recast-online": "",
    "recast": "{{kind: recast, profile: {profile}}}",
    "reversed": "{{kind: reversed, profile: {profile}}}",
}
"""The recipe's credit block, by the name in the table; empty is the recipe's own."""


def study(args: argparse.Namespace) -> dict[str, Any]:
    """All runs, by `credit|seed`; `base` is the untrained starter."""
    if not args.profile.is_file():
        settings = ProfileSettings(prompts=32, per_prompt=10, probes=8)
        run_profile(
            "starter-static", out=args.profile, overrides=[], settings=settings, device="cpu"
        )
    results = Results(args.out / "credit.json")
    common = [f"model.base={args.base}", "samples_every=0", *args.set]
    if args.epochs:
        common.append(f"epochs={args.epochs}")
    scorers = (*REWARDS, *args.judges)
    scored = partial(evaluate, images=args.images, prompt_sets=PROMPTS)

    def base() -> dict[str, Any]:
        return {"scores": scored("starter-recast", common, None, scorers)}

    def trained(name: str, seed: int) -> dict[str, Any]:
        out, sets = args.out / f"{name}-{seed}", [*common, f"seed={seed}"]
        if CREDITS[name]:
            sets.append("credit=" + CREDITS[name].format(profile=args.profile.resolve()))
        cost = train("starter-recast", out, sets)
        epochs = {r["epoch"]: r["values"] for r in metrics_of(out)}.values()
        curves = {n: [values[f"reward/{n}"] for values in epochs] for n in REWARDS}
        scores = scored("starter-recast", sets, out, scorers)
        return {"cost": cost, "curves": curves, "scores": scores}

    results.get("base", base)
    for seed in args.seeds:  # all credits of one seed before the next
        for name in CREDITS:
            results.get(f"{name}|{seed}", partial(trained, name, seed))
    return results.found


def table(done: dict[str, Any], args: argparse.Namespace) -> str:
    """Gains over the base pooled over the seeds, then differences from static."""
    scorers = ("all", *REWARDS, *args.judges)
    names = list(CREDITS)
    runs = {
        name: [together(done[f"{name}|{seed}"]["scores"], REWARDS) for seed in args.seeds]
        for name in names
    }
    base = together(done["base"]["scores"], REWARDS)
    lines = [
        f"Gain over the base ± standard error over prompts, [least, most] of the {len(args.seeds)} "
        "seeds' means; below, the same pictures' differences from `static`:",
        "",
        f"| credit | {' | '.join(scorers)} |",
        "|---|" + "---|" * len(scorers),
        f"| base | {base_cells(base, scorers)} |",
    ]
    for name in names:
        cells = [pooled([run[n] for run in runs[name]], base[n]) for n in scorers]
        lines.append(_row(name, cells, args))
    for name in names[1:]:
        cells = [
            paired([run[n] for run in runs[name]], [run[n] for run in runs["static"]])
            for n in scorers
        ]
        lines.append(_row(f"{name} - static", cells, args))
    return "\n".join(lines) + "\n"


def _row(name: str, cells: Sequence[Pooled], args: argparse.Namespace) -> str:
    return f"| {name} | {' | '.join(gain_cell(cell, len(args.seeds)) for cell in cells)} |"


def main() -> None:
    """Train what is missing, compare, print."""
    parser = study_parser(__doc__, out=Path("runs/credit"), judges=JUDGES)
    parser.add_argument("--profile", type=Path, default=Path("runs/credit/profile.json"))
    parser.add_argument("--epochs", type=int, default=0, help="0: as many as the recipe")
    args = parser.parse_args()
    start(args)
    text = table(study(args), args)
    if args.write is not None:
        write_between(text, args.write, BEGIN, END)
        logging.info("written to %s", args.write)
    print(text)


if __name__ == "__main__":
    main()
