"""Which weighting learns fastest on the masked starter: one command, resumable.

    python benchmarks/rebrl_study.py --out runs/rebrl-study [--epochs 32] [--seeds 1 2 3]

Trains every variant on every reward and seed with the shipped recipe `starter-rebrl` and the
same prompts, noise and number of steps, then draws the test prompts with fixed seeds and scores
them with the reward and with scorers that were not trained on. An epoch's reward depends on its
prompts more than on what was learnt, so the untrained model is run through the same epochs, and
curves are what a variant gained over it. Writes `study.json`, a table (`study.md`) and a figure
for each reward; runs that are done are not done again. `--write` puts the table into the docs.
"""

import argparse
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from starter_runs import start, write_between

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
STILL = ["method.preset=unigrpo", "optimiser.learning_rate=1.0e-12"]
"""The untrained model on the same prompts and noise."""
BEGIN, END = "<!-- rebrl study: begin -->", "<!-- rebrl study: end -->"
JUDGES = ("composition", "tidy", "verifier", "alignment-heldout", "card-distance")
"""Scorers of the final pictures; the last three share nothing with either reward."""


def run_sets(args: argparse.Namespace, reward: str, switches: list[str], seed: int) -> list[str]:
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
        *switches,
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
    """Scores, KL and learning curve by `reward|variant|seed`; `reward|base` is before training."""
    results = args.out / "study.json"
    done: dict[str, Any] = json.loads(results.read_text("utf-8")) if results.is_file() else {}
    recipe = find_recipe("starter-rebrl")

    def trained(key: str, reward: str, switches: list[str], seed: int, *, score: bool) -> None:
        folder = args.out / key.replace("|", "-").replace(" ", "-").replace(",", "")
        sets = run_sets(args, reward, switches, seed)
        if not run_recipe(
            "starter-rebrl", out=folder, overrides=sets, resume=True, device="cpu"
        ).finished:
            raise SystemExit(f"stopped in {folder}; the same command goes on from there")
        found = evaluate(load_plan(recipe, sets), folder, args) if score else {}
        done[key] = found | {"curve": curve(folder, reward)}
        results.write_text(json.dumps(done, indent=1) + "\n", "utf-8")
        logging.info("%s: %.4f", key, found.get(reward, float("nan")))

    for reward in args.rewards:
        if f"{reward}|base" not in done:
            plan = load_plan(recipe, run_sets(args, reward, STILL, 1))
            done[f"{reward}|base"] = evaluate(plan, None, args)
    for seed in args.seeds:
        for reward in args.rewards:
            for variant in args.variants:
                if (key := f"{reward}|{variant}|{seed}") not in done:
                    trained(key, reward, VARIANTS[variant], seed, score=True)
            if (key := f"{reward}|untrained|{seed}") not in done:
                trained(key, reward, STILL, seed, score=False)
    return done


def table(done: dict[str, Any], args: argparse.Namespace) -> str:
    """A row a reward and variant: over the seeds, on test prompts and while training."""
    others = {r: [j for j in JUDGES if j != r] for r in args.rewards}
    lines = []
    for reward in args.rewards:
        base = done[f"{reward}|base"]
        lines += [
            f"| trained on `{reward}` | final, mean [least, most] of {len(args.seeds)} seeds | "
            "minus UniGRPO, seed by seed | KL to base | epochs to UniGRPO's last gain | "
            + " | ".join(others[reward])
            + " |",
            "|---|---|---|---|---|" + "---|" * len(others[reward]),
            f"| base | {base[reward]:.3f} | | 0 | | "
            + " | ".join(f"{base[j]:.3f}" for j in others[reward])
            + " |",
        ]
        goal = gains(done, reward, "unigrpo", args).mean(0)[-1]
        for variant in args.variants:
            runs = [done[f"{reward}|{variant}|{s}"] for s in args.seeds]
            final = np.array([r[reward] for r in runs])
            unigrpo = np.array([done[f"{reward}|unigrpo|{s}"][reward] for s in args.seeds])
            apart = ", ".join(f"{d:+.3f}" for d in final - unigrpo)
            judged = " | ".join(f"{np.mean([r[j] for r in runs]):.3f}" for j in others[reward])
            lines.append(
                f"| {variant} | {final.mean():.3f} [{final.min():.3f}, {final.max():.3f}] | "
                f"{'' if variant == 'unigrpo' else apart} | {np.mean([r['kl'] for r in runs]):.3f} "
                f"| {reach(gains(done, reward, variant, args).mean(0), goal)} | {judged} |"
            )
        lines.append("")
    return "\n".join(lines)


def gains(done: dict[str, Any], reward: str, variant: str, args: argparse.Namespace) -> np.ndarray:
    """(seeds, epochs) reward over the untrained model's on the same prompts and noise, smoothed."""
    pairs = [
        (done[f"{reward}|{variant}|{s}"]["curve"], done[f"{reward}|untrained|{s}"]["curve"])
        for s in args.seeds
    ]
    return np.array([_smooth(np.subtract(ours, still)) for ours, still in pairs])


def _smooth(values: np.ndarray, width: int = 8) -> np.ndarray:
    """Trailing mean, shorter at the beginning."""
    total = np.cumsum(np.r_[0.0, values])
    last = np.arange(1, len(values) + 1)
    first = np.maximum(last - width, 0)
    smoothed: np.ndarray = (total[last] - total[first]) / (last - first)
    return smoothed


def reach(values: np.ndarray, goal: float) -> str:
    """First epoch from which the smoothed gain stays at the goal or above."""
    below = np.flatnonzero(values < goal)
    first = int(below[-1]) + 2 if len(below) else 1
    return str(first) if first <= len(values) else "not reached"


def figure(done: dict[str, Any], args: argparse.Namespace, reward: str) -> None:
    """Gain over the untrained model against epoch; the band is the seeds' range."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "recast"
    from matplotlib import pyplot as plt

    shown = [v for v in args.variants if v != "unigrpo"]
    grid, axes = plt.subplots(2, 3, figsize=(9, 5), sharex=True, sharey=True, layout="constrained")
    plain = gains(done, reward, "unigrpo", args)
    epochs = np.arange(1, plain.shape[1] + 1)
    for axis, variant in zip(axes.flat, shown, strict=False):
        for lines, color, label in (
            (plain, "#4f565e", "UniGRPO"),
            (gains(done, reward, variant, args), "#0072b2", variant),
        ):
            axis.fill_between(epochs, lines.min(0), lines.max(0), color=color, alpha=0.15, lw=0)
            axis.plot(epochs, lines.mean(0), color=color, label=label)
        axis.axhline(0, color="#4f565e", lw=0.8, ls=":")
        axis.legend(frameon=False, fontsize=8, loc="upper left")
    grid.supxlabel("epoch")
    grid.supylabel(f"{reward}: gain over the untrained model")
    grid.savefig((args.figures or args.out) / f"rebrl-{reward}.svg", metadata={"Date": None})
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
    parser.add_argument("--figures", type=Path, help="folder for the figures")
    parser.add_argument("--write", type=Path, help="page that gets the table")
    parser.add_argument("--set", nargs="*", default=[], help="a.b=value laid over every run")
    args = parser.parse_args()
    start(args)
    done = study(args)
    text = table(done, args)
    (args.out / "study.md").write_text(text, "utf-8")
    for reward in args.rewards:
        figure(done, args, reward)
    if args.write is not None:
        write_between(text, args.write, BEGIN, END)
    print(text)


if __name__ == "__main__":
    main()
