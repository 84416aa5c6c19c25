"""When is each reward decided on the starter? Discriminability and gains with bands, 3 seeds.

    python benchmarks/gain_curves.py --out runs/gain-curves [--seeds 1 2 3] [--write docs/credit.md]

Profiles the shipped recipe once a seed (other prompts, other pictures, other noise; done
profiles are not measured again), then compares the seeds: where the gain is largest, and at
which noise level half of a reward is decided. `--figure` and `--write` put them into the docs.
"""

import argparse
import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np
from starter_runs import start, write_between

from recast_train.credit.measure import Measured
from recast_train.credit.profile import Profile, profile_gains, read_profile
from recast_train.profiling import ProfileSettings, run_profile

BEGIN, END = "<!-- gain curves: begin -->", "<!-- gain curves: end -->"
REWARDS = ("composition", "alignment", "ocr", "finish")


class Seed(NamedTuple):
    """One seed's profile and what follows from its best estimator."""

    profile: Profile
    found: Measured


def measure_seeds(args: argparse.Namespace) -> list[Seed]:
    """A profile a seed, measured now or before."""
    seeds = []
    for seed in args.seeds:
        path = args.out / f"seed-{seed}.json"
        if not path.is_file():
            settings = ProfileSettings(
                prompts=args.prompts, per_prompt=args.images, probes=args.probes
            )
            sets = [f"model.base={args.base}", f"seed={seed}", *args.set]
            run_profile("starter-static", out=path, overrides=sets, settings=settings, device="cpu")
            logging.info("profile of seed %d is in %s", seed, path)
        profile = read_profile(path)
        found = profile_gains(profile, REWARDS, profile.sigmas)
        seeds.append(Seed(profile, found))
    return seeds


def half_level(curve: np.ndarray, sigmas: np.ndarray) -> float:
    """Noise level at which a curve that rises from 0 to 1 passes one half.

    Args:
        curve: (T+1,) monotone, noise first.
        sigmas: (T+1,) falling.
    """
    after = int(np.argmax(curve >= 0.5))
    low, high = curve[after - 1], curve[after]
    share = (0.5 - low) / (high - low)
    return float(sigmas[after - 1] + share * (sigmas[after] - sigmas[after - 1]))


def table(seeds: list[Seed], args: argparse.Namespace) -> str:
    """A row a reward: the level where half is decided and the step of the largest gain."""
    sigmas = np.array(seeds[0].profile.sigmas)
    lines = [
        "| reward | half decided at noise level (each seed) | largest gain at step, of "
        f"{len(sigmas) - 1} (each seed) | reliability of the gains |",
        "|---|---|---|---|",
    ]
    for k, name in enumerate(REWARDS):
        halves = [f"{half_level(s.found.curves[k], sigmas):.2f}" for s in seeds]
        peaks = [str(int(np.argmax(s.found.gains[k]))) for s in seeds]
        trust = [f"{s.found.reliability[k]:.2f}" for s in seeds]
        lines.append(f"| {name} | {', '.join(halves)} | {', '.join(peaks)} | {', '.join(trust)} |")
    images = seeds[0].profile.images
    lines += [
        "",
        f"{len(seeds)} seeds, each {seeds[0].profile.prompts} training prompts, {images} pictures "
        f"and {len(seeds[0].profile.probes)} noise levels; step 0 is the noisiest. Made by",
        "",
        f"    python benchmarks/gain_curves.py --seeds {' '.join(map(str, args.seeds))} --prompts "
        f"{args.prompts} --images {args.images} --probes {args.probes}",
    ]
    return "\n".join(lines) + "\n"


def figure(seeds: list[Seed], path: Path) -> None:
    """Above the curve of each seed with its 95 % band, below the relative gains."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "recast"
    from matplotlib import pyplot as plt

    sigmas = np.array(seeds[0].profile.sigmas)
    steps = len(sigmas) - 1
    colors = ("#0072b2", "#d55e00", "#009e73")
    grid, axes = plt.subplots(
        2, len(REWARDS), figsize=(11, 4.6), sharex="row", sharey="row", layout="constrained"
    )
    for k, name in enumerate(REWARDS):
        top, bottom = axes[:, k]
        for seed, color, dashes in zip(seeds, colors, ("-", "--", ":"), strict=False):
            curve, error = seed.found.curves[k], 1.96 * seed.found.errors[k]
            top.fill_between(sigmas, curve - error, curve + error, color=color, alpha=0.15, lw=0)
            top.plot(sigmas, curve, color=color, ls=dashes)
            gains = seed.found.gains[k] * steps / max(seed.found.gains[k].sum(), 1e-12)
            bottom.step(np.arange(steps), gains, where="mid", color=color, ls=dashes)
        top.set_title(name, fontsize=9)
        top.invert_xaxis() if k == 0 else None
        bottom.axhline(1.0, color="#999999", lw=0.8)
    axes[0, 0].set_ylabel("share of the reward decided", fontsize=8)
    axes[1, 0].set_ylabel("gain, static = 1", fontsize=8)
    for top, bottom in axes.T:
        top.set_xlabel("noise level", fontsize=8)
        bottom.set_xlabel("denoising step", fontsize=8)
    grid.savefig(path, metadata={"Date": None})
    plt.close(grid)


def main() -> None:
    """Measure what is missing, compare, draw, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/gain-curves"))
    parser.add_argument("--base", default="starter")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--probes", type=int, default=8)
    parser.add_argument("--set", nargs="*", default=[], help="a.b=value laid over the recipe")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    start(args)
    seeds = measure_seeds(args)
    text = table(seeds, args)
    figure(seeds, args.figure or args.out / "gain-curves.svg")
    if args.write is not None:
        write_between(text, args.write, BEGIN, END)
    print(text)


if __name__ == "__main__":
    main()
