"""An NFT epoch of ours against a plain transcription of the published loop, in one process.

    python benchmarks/nft_epoch.py [--base starter] [--epochs 3] [--threads 1]

The plain loop encodes its prompts anew for every batch, rolls out with the adapter beside the
base weights, scores when all images are there, and runs three separate forwards (old, trained,
reference) for every batch and noise level, as the released script does. Ours remembers
embeddings, merges the adapter for rollouts, scores while it draws, and reuses the trained
velocity where it is the old one; with `--kl 0` it never asks the reference (the default, 1e-4,
is the published weight, and like for like). Both train a copy of one policy on the same prompts,
noise and timestep orders with the same micro-batches; epochs alternate. One JSON line;
exit status 1 if ours is less than 1.3 times faster (wall clock: the overlap needs a second core,
CPU seconds are there for busy machines) or the loss curves part by more than 0.1 %.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from recast_eval.records import MetricRecord, read_records
from recast_train.config import load_plan
from recast_train.loop import mixed_advantages, run_epoch
from recast_train.parts import Parts, build_parts, build_policy
from recast_train.policies.base import Condition, Rollout
from recast_train.prompts import load_prompts
from recast_train.recipe_files import find_recipe
from recast_train.rewards import build_scorers, score
from recast_train.run_folder import RunFolder

CHANGES = [
    "groups={prompts_per_epoch: 4, group_size: 12}",
    "sampler={steps: 10, rollout_batch: 12}",
    "micro_batch=24",
    "steps_per_epoch=1",
    "checkpoint_every=100000",
    "samples_every=0",
]


def parts_of(base: str, folder: Path, precision: str, kl: float) -> Parts:
    """One run, ready for its first epoch."""
    method = f"{{kind: nft, beta: 0.5, timestep_fraction: 0.99, kl: {kl:f}}}"
    changes = [*CHANGES, f"model.base={base}", f"sampler.precision={precision}"]
    changes += [f"method={method}", "method.old_decay={kind: copy}"]
    plan = load_plan(find_recipe("starter-static"), changes)
    home = RunFolder(folder)
    home.prepare(plan, resume=False)
    scorers = build_scorers(plan.rewards, plan.recipe.rewards, "cpu")
    return build_parts(
        plan, home, build_policy(plan, "cpu"), scorers, load_prompts(plan.recipe.prompts)
    )


def plain_draw(parts: Parts, number: int) -> tuple[Rollout, np.ndarray]:
    """Encode, sample, decode and score, one after the other."""
    batch, policy = parts.sampler.epoch(number), parts.policy
    size = parts.plan.recipe.sampler.rollout_batch
    pieces, images = [], []
    for start in range(0, len(batch.prompts), size):
        prompts = list(batch.prompts[start : start + size])
        embeds, _, pooled, _ = policy.pipeline.encode_prompt(
            prompt=prompts,
            prompt_2=None,
            prompt_3=None,
            do_classifier_free_guidance=False,
            max_sequence_length=parts.plan.policy_config.max_sequence_length,
        )
        condition = Condition({"embeds": embeds.detach(), "pooled": pooled.detach()})
        x = torch.randn((len(prompts), *policy._latent), generator=parts.streams["rollout"])
        for here, there in zip(policy.sigmas[:-1], policy.sigmas[1:], strict=True):
            x = x + (there - here) * policy.velocity(x, here.expand(len(x)), condition, who="old")
        pieces.append(Rollout(x, condition))
        images.append(policy.decode(x))
    rewards = score(parts.scorers, np.concatenate(images), list(batch.prompts))
    tensors = {
        key: torch.cat([piece.condition.tensors[key] for piece in pieces])
        for key in pieces[0].condition.tensors
    }
    return Rollout(torch.cat([piece.x_0 for piece in pieces]), Condition(tensors)), rewards


def plain_loss(
    parts: Parts, rollout: Rollout, rows: Tensor, t: Tensor, noise: Tensor, a: Tensor
) -> Tensor:
    """Three forwards and the loss in x_0 space, as the released script writes them."""
    policy, cfg = parts.policy, parts.method.config
    x_0, condition = rollout.x_0[rows], rollout.condition.take(rows)
    level = t.view(-1, 1, 1, 1)
    x_t = (1 - level) * x_0 + level * noise
    with torch.no_grad():
        old = policy.velocity(x_t, t, condition, who="old")
    new = policy.velocity(x_t, t, condition, who="new")
    with torch.no_grad():
        reference = policy.velocity(x_t, t, condition, who="reference")
    good = (a / (2 * cfg.adv_clip) + 0.5).clamp(0, 1)
    errors = []
    for sign in (1, -1):
        guess = x_t - level * (old + sign * cfg.beta * (new - old))
        with torch.no_grad():
            weight = (guess.double() - x_0.double()).abs().mean(dim=(1, 2, 3)).clamp(min=1e-5)
        errors.append((guess - x_0).square().mean(dim=(1, 2, 3)) / weight)
    contrast = (good * errors[0] + (1 - good) * errors[1]) / cfg.beta * cfg.adv_clip
    return contrast.mean() + cfg.kl * (new - reference).square().mean()


def plain_epoch(parts: Parts, number: int) -> float:
    """The published loop; returns its mean loss."""
    recipe = parts.plan.recipe
    rollout, rewards = plain_draw(parts, number)
    groups = parts.sampler.epoch(number).groups.numpy()
    order = torch.randperm(len(groups), generator=parts.streams["order"])
    advantages = mixed_advantages(parts, rewards, groups)[..., order]
    taken = rollout.take(order)
    total = 0.0
    works = parts.method.works(
        taken, parts.num_steps, recipe.micro_batch, parts.streams["training"]
    )
    for work in works:
        assert work.noise is not None
        t = parts.policy.sigmas[work.steps]
        mixed = advantages[work.steps, work.rows]
        loss = plain_loss(parts, taken, work.rows, t, work.noise, mixed) * work.weight
        loss.backward()
        total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_(parts.policy.parameters(), recipe.optimiser.max_grad_norm)
    parts.optimiser.step()
    parts.optimiser.zero_grad()
    parts.step += 1
    parts.ema.update(parts.step)
    parts.policy.update_old(parts.method.old_decay(parts.step, number))
    parts.epoch = number + 1
    return total


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="starter")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--precision", default="fp32", help="of our rollouts; bf16 parts the curves"
    )
    parser.add_argument(
        "--kl", type=float, default=1e-4, help="0 spares ours a forward, not the plain loop"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    seconds: dict[str, list[float]] = {"ours": [], "plain": []}
    walls: dict[str, list[float]] = {"ours": [], "plain": []}
    losses: list[float] = []
    with tempfile.TemporaryDirectory() as scratch:
        ours = parts_of(args.base, Path(scratch) / "ours", args.precision, args.kl)
        plain = parts_of(args.base, Path(scratch) / "plain", "fp32", args.kl)
        for number in range(args.epochs + 1):
            for name in ("ours", "plain") if number % 2 else ("plain", "ours"):
                began, wall = time.process_time(), time.perf_counter()
                if name == "ours":
                    run_epoch(ours, number)
                else:
                    losses.append(plain_epoch(plain, number))
                if number:  # the first one warms up
                    seconds[name].append(time.process_time() - began)
                    walls[name].append(time.perf_counter() - wall)
        curve = [r.values["loss"] for r in read_records(ours.folder.metrics, MetricRecord)]
    gap = float(np.max(np.abs(np.array(curve) - losses) / np.abs(losses)))
    ratios = {
        key: statistics.median(a / b for a, b in zip(t["plain"], t["ours"], strict=True))
        for key, t in (("cpu", seconds), ("wall", walls))
    }
    found = {
        "images": 48,
        "epochs": args.epochs,
        "threads": args.threads,
        "rollout_precision": args.precision,
        "kl": args.kl,
        "cpu_seconds_an_epoch": {k: round(statistics.median(v), 3) for k, v in seconds.items()},
        "speedup_cpu": round(ratios["cpu"], 3),
        "speedup_wall": round(ratios["wall"], 3),
        "loss_gap": float(f"{gap:.2e}"),
    }
    print(json.dumps(found))
    return 0 if ratios["wall"] >= 1.3 and gap < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
