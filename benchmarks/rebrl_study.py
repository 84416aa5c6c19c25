"""Which weighting learns fastest on the masked starter: one command, resumable.

    python benchmarks/rebrl_study.py --out runs/rebrl-study [--epochs 20] [--seeds 1 2 3]

Trains every variant on every reward and seed with the shipped recipe `starter-rebrl` and the
same prompts, noise and number of steps, then draws the test prompts with fixed seeds and scores
them with the reward and with scorers that were not trained on. Writes `study.json`, a table
(`study.md`) and a figure for each reward; runs that are done are not done again.
"""

import argparse
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recast_eval.records import Scored
from recast_eval.scorers import SCORERS
from recast_train.checkpoint import list_checkpoints, load_checkpoint
from recast_train.config import load_plan
from recast_train.parts import build_policy
from recast_train.prompts import load_prompts
from recast_train.recipe_files import find_recipe
from recast_train.recipe_types import PromptsConfig
from recast_train.session import run_recipe

VARIANTS = {
    "unigrpo": ["method.preset=unigrpo"],
    "stage power 1": ["method.preset=rebrl1"],
    "inverse frequency": ["method.preset=rebrl-token"],
    "rebrl (both)": ["method.preset=rebrl"],
    "diffu-grpo": ["method.preset=diffu-grpo"],
    "trajectory, balance 0": ["method.preset=mask-grpo"],
    "trajectory, balance 1": ["method.preset=mask-grpo", "method.stage_balance=1"],
}
JUDGES = ("composition", "tidy", "verifier", "alignment-heldout", "card-distance")
"""Scorers of the final pictures; the last three share nothing with either reward."""


def run_sets(args: argparse.Namespace, reward: str, variant: str, seed: int) -> list[str]:
    return [
        f"model.base={args.base}",
        f"seed={seed}",
        f"epochs={args.epochs}",
        f"sampler.steps={args.stages}",
        f"groups.prompts_per_epoch={args.prompts}",
        f"groups.group_size={args.group}",
        f"optimiser.learning_rate={args.learning_rate}",
        f"method.beta={args.beta}",
        f"rewards={{{reward}: 1}}",
        f"checkpoint_every={args.epochs}",
        "samples_every=0",
        "ema_ceiling=0",
        *args.set,
        *VARIANTS[variant],
    ]


def evaluate(plan: Any, folder: Path | None, args: argparse.Namespace) -> dict[str, float]:
    """Fixed-seed pictures of test prompts: means of all scorers; KL to the base a token."""
    policy = build_policy(plan, "cpu")
    if folder is not None:
        policy.load_state(
            load_checkpoint(list_checkpoints(folder / "checkpoints")[-1])[1]["policy"]
        )
    listed = load_prompts(PromptsConfig(set="starter-geneval", split="test"))[: args.images]
    prompts = [prompt for prompt in listed for _ in range(args.repeats)]
    condition = policy.encode(prompts)
    rollout = policy.rollout(condition, torch.Generator().manual_seed(12345), {})
    pictures = policy.decode(rollout.x_0)
    found = {"kl": _kl(policy, rollout, condition)}
    for name in JUDGES:
        outcomes = SCORERS.load(name).build()(pictures, prompts)
        values = [o.value for o in outcomes if isinstance(o, Scored)]
        if not values:
            raise SystemExit(f"{name} could score none of {len(outcomes)} pictures")
        found[name] = float(np.mean(values))
        found[f"{name}/scored"] = len(values)
    return found


@torch.no_grad()
def _kl(policy: Any, rollout: Any, condition: Any) -> float:
    """Mean KL(old || base) a masked token over the stages of the rollout, exact over tokens."""
    total, count = 0.0, 0
    for step in range(len(policy.counts) - 1):
        hidden = rollout.trace["decode_step"] >= step
        state = rollout.x_0.masked_fill(hidden, policy.mask_id)
        ours = policy.distribution(state, condition, who="old")
        base = policy.distribution(state, condition, who="reference")
        each = (ours.exp() * (ours - base)).sum(-1)[hidden]
        total, count = total + float(each.sum()), count + each.numel()
    return total / count


def curve(folder: Path, reward: str) -> list[float]:
    lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["values"][f"reward/{reward}"] for line in lines]


def study(args: argparse.Namespace) -> dict[str, Any]:
    results = args.out / "study.json"
    done: dict[str, Any] = json.loads(results.read_text("utf-8")) if results.is_file() else {}
    recipe = find_recipe("starter-rebrl")
    for reward in args.rewards:
        key = f"{reward}|base"
        if key not in done or any(j not in done[key] for j in JUDGES):
            plan = load_plan(recipe, run_sets(args, reward, "unigrpo", 1))
            done[key] = evaluate(plan, None, args)
    for seed in args.seeds:
        for reward in args.rewards:
            for variant in args.variants:
                key = f"{reward}|{variant}|{seed}"
                if key in done and all(j in done[key] for j in JUDGES):
                    continue
                slug = f"{reward}-{variant.replace(' ', '-').replace(',', '')}-{seed}"
                folder, sets = args.out / slug, run_sets(args, reward, variant, seed)
                if not run_recipe(
                    "starter-rebrl", out=folder, overrides=sets, resume=True, device="cpu"
                ):
                    raise SystemExit(f"stopped in {folder}; the same command goes on from there")
                found = evaluate(load_plan(recipe, sets), folder, args)
                done[key] = found | {"curve": curve(folder, reward)}
                results.write_text(json.dumps(done, indent=1) + "\n", "utf-8")
                logging.info("%s: %.4f", key, found[reward])
    return done


def table(done: dict[str, Any], args: argparse.Namespace) -> str:
    """A row a reward and variant: mean [min, max] over the seeds."""
    lines = [
        "| reward | variant | seeds | mean reward in training | final reward | epochs to reach "
        "UniGRPO's last level | KL to base | held out |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for reward in args.rewards:
        base = done[f"{reward}|base"]
        others = [j for j in JUDGES if j != reward]
        said = ", ".join(f"{j} {base[j]:.3f}" for j in others)
        lines.append(f"| {reward} | base | | | {base[reward]:.3f} | | 0 | {said} |")
        goal = _goal(done, reward, args)
        for variant in args.variants:
            runs = [r for s in args.seeds if (r := done.get(f"{reward}|{variant}|{s}")) is not None]
            if not runs:
                continue
            final = [r[reward] for r in runs]
            curves = [float(np.mean(r["curve"])) for r in runs]
            reach = _reach(np.mean([r["curve"] for r in runs], 0), goal)
            said = ", ".join(f"{j} {np.mean([r[j] for r in runs]):.3f}" for j in others)
            lines.append(
                f"| {reward} | {variant} | {len(runs)} | {_range(curves)} | {_range(final)} | "
                f"{reach} | {np.mean([r['kl'] for r in runs]):.4f} | {said} |"
            )
    return "\n".join(lines) + "\n"


def _smooth(values: np.ndarray, width: int = 5) -> np.ndarray:
    """Trailing mean, shorter at the beginning: an epoch's prompts differ from the next's."""
    total = np.cumsum(np.r_[0.0, values])
    last = np.arange(1, len(values) + 1)
    first = np.maximum(last - width, 0)
    smoothed: np.ndarray = (total[last] - total[first]) / (last - first)
    return smoothed


def _goal(done: dict[str, Any], reward: str, args: argparse.Namespace) -> float:
    runs = [done.get(f"{reward}|unigrpo|{s}") for s in args.seeds]
    curves = [r["curve"] for r in runs if r is not None]
    return float(_smooth(np.mean(curves, 0))[-1]) if curves else float("inf")


def _reach(values: np.ndarray, goal: float) -> str:
    hit = np.flatnonzero(_smooth(values) >= goal)
    return str(int(hit[0]) + 1) if len(hit) else "not reached"


def _range(values: list[float]) -> str:
    return f"{np.mean(values):.3f} [{min(values):.3f}, {max(values):.3f}]"


def figure(done: dict[str, Any], args: argparse.Namespace, reward: str) -> None:
    """Reward minus UniGRPO's, same seed and prompts, against epoch; the band is the seeds' range.

    The reward itself follows which prompts an epoch has; the difference does not.
    """
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "recast"
    from matplotlib import pyplot as plt

    others = [v for v in args.variants if v != "unigrpo"]
    grid, axes = plt.subplots(2, 3, figsize=(9, 5), sharex=True, sharey=True, layout="constrained")
    for axis, variant in zip(axes.flat, others, strict=False):
        keys = [(f"{reward}|{variant}|{s}", f"{reward}|unigrpo|{s}") for s in args.seeds]
        runs = [(done[a]["curve"], done[b]["curve"]) for a, b in keys if a in done and b in done]
        if not runs:
            continue
        lines = np.array([_smooth(np.subtract(ours, base)) for ours, base in runs])
        epochs = np.arange(1, lines.shape[1] + 1)
        axis.axhline(0, color="#4f565e", lw=0.8, ls=":")
        axis.fill_between(epochs, lines.min(0), lines.max(0), color="#0072b2", alpha=0.2, lw=0)
        axis.plot(epochs, lines.mean(0), color="#0072b2")
        axis.set_title(f"{variant} ({len(runs)} seeds)", fontsize=9)
    grid.supxlabel("epoch")
    grid.supylabel(f"{reward} minus UniGRPO's (mean of 5 epochs)")
    grid.savefig(args.out / f"{reward}.svg", metadata={"Date": None})
    plt.close(grid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/rebrl-study"))
    parser.add_argument("--base", default="starter-masked")
    parser.add_argument("--epochs", type=int, default=32)
    parser.add_argument("--stages", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--group", type=int, default=12)
    parser.add_argument("--images", type=int, default=96, help="test prompts")
    parser.add_argument("--repeats", type=int, default=4, help="pictures of each")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--beta", type=float, default=0.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rewards", nargs="+", default=["composition", "tidy"])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--set", nargs="*", default=[], help="a.b=value laid over every run")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    done = study(args)
    text = table(done, args)
    (args.out / "study.md").write_text(text, "utf-8")
    for reward in args.rewards:
        figure(done, args, reward)
    print(text)


if __name__ == "__main__":
    main()
