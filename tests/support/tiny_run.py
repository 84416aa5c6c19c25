"""Whole runs on the tiny SD3: real parts, rewards that read a colour channel.

Also a script, so that ``torchrun`` can start several processes of one run:
``python -m torch.distributed.run ... tests/support/tiny_run.py RECIPE_JSON OUT``.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recast_eval.records import Failed, Scored
from recast_eval.scorers import ScorerCard, ScorerSpec
from recast_eval.scorers.each import NOT_APPLICABLE
from recast_train import distributed
from recast_train.config import make_plan
from recast_train.loop import train
from recast_train.parts import Parts, build_parts, build_policy
from recast_train.run_folder import RunFolder

CHANNELS = {"red": 0, "green": 1, "blue": 2}
PROMPTS = [f"{colour} card {number}" for colour in CHANNELS for number in range(3)]


class _Channel:
    """Mean of a colour channel; ``flat`` gives every image the same; ``dead`` fails always,
    ``patchy`` on each batch's first image; ``absent`` applies to nothing."""

    def __init__(self, name: str) -> None:
        self.card = ScorerCard(name=name, version=1, family=name, what="a colour", unit="share")

    def __call__(
        self, images: Sequence[np.ndarray], prompts: Sequence[str]
    ) -> list[Scored | Failed]:
        if self.card.name == "flat":
            return [Scored(value=0.5) for _ in images]
        if self.card.name in ("dead", "absent"):
            dead = self.card.name == "dead"
            return [Failed(reason="no server" if dead else NOT_APPLICABLE) for _ in images]
        channel = CHANNELS.get(self.card.name, 0)
        found: list[Scored | Failed] = [
            Scored(value=float(image[..., channel].mean() / 255)) for image in images
        ]
        return [Failed(reason="blur"), *found[1:]] if self.card.name == "patchy" else found


class Book:
    """Where the tiny rewards are looked up."""

    def load(self, name: str) -> ScorerSpec:
        """The spec of a colour."""
        return ScorerSpec(_Channel(name).card, lambda **options: _Channel(name))


def tiny_recipe(base: Path, **changes: Any) -> dict[str, Any]:
    """A recipe's values; ``base`` is a folder from ``save_tiny_sd3``."""
    return {
        "name": "tiny",
        "seed": 3,
        "model": {"base": str(base), "lora": {"rank": 2, "alpha": 4}},
        "sampler": {"steps": 4},
        "prompts": {"set": "tiny"},
        "groups": {"prompts_per_epoch": 3, "group_size": 4},
        "rewards": {"red": 1, "blue": 1},
        "method": {"kind": "nft"},
        "optimiser": {"learning_rate": 1e-2},
        "epochs": 3,
        "micro_batch": 4,
        "samples_every": 0,
    } | changes


def tiny_run(recipe: Mapping[str, Any], out: Path, *, stop_after: int = 0) -> Parts:
    """Train it, or what is left of it, and return what is in memory at the end."""
    plan = make_plan(dict(recipe), scorers=Book())
    folder = RunFolder(out)
    if distributed.rank() == 0:
        folder.prepare(plan, resume=out.exists())
    distributed.barrier()
    scorers = {name: _Channel(name) for name in plan.rewards}
    parts = build_parts(plan, folder, build_policy(plan, "cpu"), scorers, PROMPTS)
    train(parts, stop=lambda: parts.epoch == stop_after)
    return parts


def flat_parameters(parts: Parts) -> torch.Tensor:
    """All trained parameters in a row."""
    return torch.cat([p.detach().flatten() for p in parts.policy.parameters()])


if __name__ == "__main__":
    torch.set_num_threads(1)
    distributed.start("cpu")
    done = tiny_run(json.loads(sys.argv[1]), Path(sys.argv[2]))
    np.save(f"{sys.argv[2]}.rank{distributed.rank()}.npy", flat_parameters(done).numpy())
    distributed.stop()
