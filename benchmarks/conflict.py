"""Rewards in conflict: a weighted sum erases the text to please the finish; does MARBLE?

    python benchmarks/conflict.py --out runs/conflict [--seeds 1 2 3] [--write docs/methods.md]

Trains `starter-marble` with each aggregator on the same prompts and noise, scores the same test
pictures before and after, and reads the alignment of every refresh from the runs' records. Done
runs are not done again. Writes conflict.json, a table, and a figure of rewards and cosines.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from starter_runs import (
    Results,
    base_cells,
    evaluate,
    gain_cell,
    metrics_of,
    pooled,
    start,
    study_parser,
    train,
    write_between,
)

REWARDS = ("composition", "ocr", "finish")
KINDS = {
    "weighted sum": "aggregator={kind: weighted-sum}",
    "MARBLE": "aggregator={kind: marble, refresh_every: 5}",
}
BEGIN, END = "<!-- conflict: begin -->", "<!-- conflict: end -->"
COSINES = ("worst_cosine", "worst_cosine_before", "worst_cosine_of_mean")


def study(args: argparse.Namespace) -> dict[str, Any]:
    """Scores and cosines by `kind|seed`; `base` is the untrained starter."""
    results = Results(args.out / "conflict.json")
    common = [f"model.base={args.base}", f"epochs={args.epochs}", *args.set]
    scorers = (*REWARDS, *args.judges)

    def base() -> dict[str, Any]:
        return {"scores": evaluate("starter-marble", common, None, scorers, args.images)}

    def trained(kind: str, seed: int) -> dict[str, Any]:
        out = args.out / f"{kind.replace(' ', '-').lower()}-{seed}"
        sets = [*common, f"seed={seed}", KINDS[kind]]
        train("starter-marble", out, sets)
        scores = evaluate("starter-marble", sets, out, scorers, args.images)
        return {"scores": scores, "records": _records(out)}

    results.get("base", base)
    for seed in args.seeds:
        for kind in KINDS:
            results.get(f"{kind}|{seed}", partial(trained, kind, seed))
    return results.found


def _records(out: Path) -> dict[str, Any]:
    """Reward curves, and the cosines of each refresh with its step."""
    records = metrics_of(out)
    epochs = {r["epoch"]: r["values"] for r in records}.values()  # an epoch has several steps
    rewards = {n: [values[f"reward/{n}"] for values in epochs] for n in REWARDS}
    fresh = [r for r in records if "aggregator/worst_cosine" in r["values"]]
    cosines = {n: [r["values"][f"aggregator/{n}"] for r in fresh] for n in COSINES}
    return {"rewards": rewards, "cosines": cosines, "steps": [r["step"] for r in fresh]}


def table(done: dict[str, Any], args: argparse.Namespace) -> str:
    """A row a kind and seed: gains over the base; worst cosines for MARBLE."""
    scorers = (*REWARDS, *args.judges)
    base = done["base"]["scores"]
    lines = [
        f"| training | seed | {' | '.join(scorers)} | worst cosine after the first 2 refreshes |",
        "|---|---|" + "---|" * (len(scorers) + 1),
        f"| base | | {base_cells(base, scorers)} | |",
    ]
    for kind in KINDS:
        for seed in args.seeds:
            found = done[f"{kind}|{seed}"]
            cells = [gain_cell(pooled([found["scores"][n]], base[n]), 1) for n in scorers]
            late = found["records"]["cosines"]["worst_cosine"][2:]
            before = found["records"]["cosines"]["worst_cosine_before"][2:]
            said = f"{min(late):+.3f} (coefficients in use: {min(before):+.3f})" if late else ""
            lines.append(f"| {kind} | {seed} | {' | '.join(cells)} | {said} |")
    return "\n".join(lines) + "\n"


def figure(done: dict[str, Any], args: argparse.Namespace) -> None:
    """Rewards of the training pictures by epoch, and the cosines of each refresh."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "recast"
    from matplotlib import pyplot as plt

    grid, axes = plt.subplots(1, 4, figsize=(12, 3), layout="constrained")
    colors = dict(zip(KINDS, ("#4f565e", "#0072b2"), strict=True))
    for axis, name in zip(axes, REWARDS, strict=False):
        for kind, color in colors.items():
            runs = [done[f"{kind}|{s}"]["records"]["rewards"][name] for s in args.seeds]
            lines = np.array([np.convolve(r, np.ones(3) / 3, "valid") for r in runs])
            epochs = np.arange(lines.shape[1]) + 2
            axis.fill_between(epochs, lines.min(0), lines.max(0), color=color, alpha=0.2, lw=0)
            axis.plot(epochs, lines.mean(0), color=color, label=kind)
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("epoch (mean of 3; band: all seeds)", fontsize=8)
    axes[0].legend(frameon=False, fontsize=8)
    said = {
        "worst_cosine": ("solved at this refresh", "#0072b2"),
        "worst_cosine_before": ("in use before it", "#56b4e9"),
        "worst_cosine_of_mean": ("plain mean of the gradients", "#d55e00"),
    }
    for seed in args.seeds:
        records = done[f"MARBLE|{seed}"]["records"]
        for name, (label, color) in said.items():
            axes[3].plot(
                records["steps"],
                records["cosines"][name],
                color=color,
                label=label if seed == args.seeds[0] else None,
            )
    axes[3].axhline(0.0, color="#999999", lw=0.8)
    axes[3].set_title("worst cosine with a reward's gradient", fontsize=9)
    axes[3].set_xlabel("optimiser step", fontsize=8)
    axes[3].legend(frameon=False, fontsize=7)
    grid.savefig(args.figure or args.out / "conflict.svg", metadata={"Date": None})
    plt.close(grid)


def main() -> None:
    """Train what is missing, compare, draw, print."""
    parser = study_parser(__doc__, out=Path("runs/conflict"), judges=("ocr-tesseract",))
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    start(args)
    done = study(args)
    text = table(done, args)
    figure(done, args)
    if args.write is not None:
        write_between(text, args.write, BEGIN, END)
    print(text)


if __name__ == "__main__":
    main()
