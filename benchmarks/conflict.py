"""Rewards in conflict: a weighted sum erases the text to please the finish; does MARBLE?

    python benchmarks/conflict.py --out runs/conflict [--seeds 1 2 3] [--write docs/methods.md]

Trains `starter-marble` with each aggregator on the same prompts and noise, scores the same test
pictures before and after, and reads the alignment of every refresh from the runs' records. Done
runs are not done again. Writes conflict.json, a table, and a figure of rewards and cosines.
"""

import argparse
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from starter_runs import evaluate, mean, metrics_of, paired, train

REWARDS = ("composition", "ocr", "finish")
KINDS = {
    "weighted sum": "aggregator={kind: weighted-sum}",
    "MARBLE": "aggregator={kind: marble, refresh_every: 5}",
}
BEGIN, END = "<!-- conflict: begin -->", "<!-- conflict: end -->"
COSINES = ("worst_cosine", "worst_cosine_before", "worst_cosine_of_mean")


def study(args: argparse.Namespace) -> dict[str, Any]:
    """Scores and cosines by kind and seed; `base` is the untrained starter."""
    results = args.out / "conflict.json"
    done: dict[str, Any] = json.loads(results.read_text("utf-8")) if results.is_file() else {}
    common = [f"model.base={args.base}", f"epochs={args.epochs}", *args.set]
    scorers = (*REWARDS, *args.judges)
    if "base" not in done:
        found = evaluate("starter-marble", common, None, scorers, args.images)
        done["base"] = {"scores": found}
    for seed in args.seeds:
        for kind, switch in KINDS.items():
            key, out = f"{kind}|{seed}", args.out / f"{kind.replace(' ', '-').lower()}-{seed}"
            if key not in done:
                sets = [*common, f"seed={seed}", switch]
                train("starter-marble", out, sets)
                scores = evaluate("starter-marble", sets, out, scorers, args.images)
                done[key] = {"scores": scores, "records": _records(out)}
                logging.info("%s: %s", key, {k: round(mean(v), 3) for k, v in scores.items()})
            results.write_text(json.dumps(done) + "\n", "utf-8")
    return done


def _records(out: Path) -> dict[str, Any]:
    """Reward curves, and the cosines of each refresh with its step."""
    records = metrics_of(out)
    rewards = {n: [r["values"][f"reward/{n}"] for r in records] for n in REWARDS}
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
        "| base | | " + " | ".join(f"{mean(base[n]):.3f}" for n in scorers) + " | |",
    ]
    for kind in KINDS:
        for seed in args.seeds:
            found = done[f"{kind}|{seed}"]
            cells = []
            for name in scorers:
                gain, error, _, _ = paired(found["scores"][name], base[name])
                cells.append(f"{gain:+.3f} ± {error:.3f}")
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


def write(text: str, path: Path) -> None:
    """Put the table between the markers of a page."""
    page = path.read_text("utf-8")
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    path.write_text(f"{head}{BEGIN}\n{text}{END}{tail}", "utf-8")


def main() -> None:
    """Train what is missing, compare, draw, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/conflict"))
    parser.add_argument("--base", default="starter")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--images", type=int, default=96)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--judges", nargs="*", default=["ocr-tesseract"])
    parser.add_argument("--set", nargs="*", default=[], help="a.b=value laid over every run")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    done = study(args)
    text = table(done, args)
    figure(done, args)
    if args.write is not None:
        write(text, args.write)
    print(text)


if __name__ == "__main__":
    main()
