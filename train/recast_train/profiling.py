"""Measure discriminability curves offline: the edge behind ``recast-train profile``."""

import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Generator, Tensor

from recast_eval.console import progress
from recast_eval.errors import ConfigError, DataError
from recast_eval.images import find_file, load_image
from recast_eval.records import ImageRecord, read_lines, write_json
from recast_eval.scorers import Scorer
from recast_train import distributed
from recast_train.config import Plan, load_plan
from recast_train.credit.estimators import Samples
from recast_train.credit.profile import Origin, Profile, build_profile
from recast_train.parts import build_policy
from recast_train.policies.base import Condition
from recast_train.probes import probe_steps
from recast_train.prompts import load_prompts
from recast_train.recipe_files import find_recipe
from recast_train.rewards import Scores, build_scorers, score_each
from recast_train.rngs import derive_seed

log = logging.getLogger(__name__)
_SHARP_STEPS = 4
"""Euler steps of the sharp estimate; it need not be good, only legible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """How much is measured."""

    prompts: int = 24
    per_prompt: int = 12
    probes: int = 8
    """Noise levels, spread over the sampler's grid."""

    def problems(self) -> Iterator[str]:
        """What is out of range."""
        for name, value, least in (
            ("--prompts", self.prompts, 2),
            ("--images-per-prompt", self.per_prompt, 2),
            ("--probes", self.probes, 1),
        ):
            if value < least:
                yield f"{name}: must be {least} or more, got {value}"


@dataclass(frozen=True, slots=True)
class _Given:
    """Finished samples to measure on."""

    x_0: Tensor
    texts: list[str]
    groups: np.ndarray
    condition: Condition


def run_profile(
    recipe: str,
    *,
    images: Path | None = None,
    out: Path | None = None,
    overrides: Sequence[str] = (),
    settings: ProfileSettings | None = None,
    device: str = "",
) -> tuple[Path, Profile]:
    """Draw or read images, noise, estimate, complete and score them; write a profile.

    Args:
        recipe: File or shipped name: its model, sampler, prompts, rewards and seed.
        images: Folder with ``metadata.jsonl`` to measure on instead of own rollouts.
        out: File; ``profiles/NAME.json`` if None.
        overrides: ``a.b=value`` each.
        settings: How much.
        device: Torch device; CUDA if there is one and none is named.

    Raises:
        ConfigError: Arguments or recipe are wrong, the profile cannot be written where it
            should, or the run has a single denoising step.
        DataError: The image folder is broken.
    """
    chosen = settings or ProfileSettings()
    problems = list(chosen.problems())
    if problems:
        raise ConfigError(problems)
    plan = load_plan(find_recipe(recipe), overrides)
    listed = None if images is None else read_image_list(images)
    prompts = load_prompts(plan.recipe.prompts) if listed is None else []
    target = out or Path("profiles") / f"{plan.recipe.name}.json"
    _check_place(target)
    if plan.recipe.threads:
        torch.set_num_threads(plan.recipe.threads)
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    distributed.check_device(where)
    policy = build_policy(plan, where)
    scorers = build_scorers(plan.rewards, plan.recipe.rewards, where)
    generator = Generator().manual_seed(derive_seed(plan.recipe.seed, "profile"))
    if listed is None:
        given = _draw(policy, prompts, chosen, generator)
    else:
        assert images is not None  # noqa: S101 - listed came from it
        given = _encode(policy, plan, images, listed)
    profile = measure_profile(plan, policy, scorers, given, chosen, generator, images is not None)
    write_json(target, profile)
    return target, profile


def _check_place(target: Path) -> None:
    """Make the folder of what will be written, before minutes of measuring.

    Raises:
        ConfigError: Nothing can be written there.
    """
    if target.is_dir():
        raise ConfigError([f"--out {target}: is a folder; give the name of a file in it"])
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError([f"--out {target}: cannot be written ({error.strerror})"]) from error
    if not os.access(target.parent, os.W_OK):
        raise ConfigError([f"--out {target}: may not be written"])


def measure_profile(
    plan: Plan,
    policy: Any,
    scorers: Mapping[str, Scorer],
    given: _Given,
    settings: ProfileSettings,
    generator: Generator,
    from_images: bool,
) -> Profile:
    """Probe finished samples and estimate from them; see ``run_profile``."""
    sigmas = policy.sigmas.numpy().astype(np.float64)
    steps = [s for s in probe_steps(len(sigmas) - 1, settings.probes) if s > 0]
    if not steps:
        raise ConfigError(["sampler.steps: one step leaves nothing to credit"])
    noise = torch.randn(given.x_0.shape, generator=generator)
    sharp = hasattr(policy, "velocity")
    parts: dict[str, list[np.ndarray]] = {"x0": [], "sharp": [], "features": [], "again": []}
    with progress() as bar:
        task = bar.add_task("probing", total=1 + len(steps) * (3 if sharp else 2))

        def scores(latents: Tensor) -> Scores:
            found = score_each(scorers, policy.decode(latents), given.texts)
            bar.advance(task)
            return found

        own = scores(given.x_0)
        for step in steps:
            x_t = policy.noised(given.x_0, step, noise)
            level = policy.sigmas[step].expand(len(x_t))
            estimate = policy.estimate(x_t, level, given.condition)
            parts["x0"].append(scores(estimate).values)
            parts["features"].append(policy.features(estimate))
            if sharp:
                parts["sharp"].append(scores(few_steps(policy, x_t, step, given.condition)).values)
            completed = policy.complete(x_t, step, given.condition, generator)
            parts["again"].append(scores(completed).values)
    samples = Samples(
        rewards=own.values,
        prompts=given.groups,
        sigmas=sigmas[steps],
        x0_rewards=np.stack(parts["x0"]),
        sharp_rewards=np.stack(parts["sharp"]) if sharp else None,
        features=np.stack(parts["features"]),
        completions=np.stack(parts["again"]),
    )
    origin = Origin(
        recipe_name=plan.recipe.name,
        recipe_digest=plan.digest(),
        base_model=str(plan.policy_config.base),
        source="images" if from_images else "rollouts",
        rewards=tuple(plan.recipe.rewards),
        sigmas=sigmas,
    )
    seed = derive_seed(plan.recipe.seed, "profile-bootstrap")
    found = build_profile(origin, samples, generator=np.random.default_rng(seed))
    counts = dict(zip(origin.rewards, own.counts, strict=True))
    return found.model_copy(update={"scored": counts})


@torch.no_grad()
def few_steps(policy: Any, x_t: Tensor, step: int, condition: Condition) -> Tensor:
    """x_0 by a few Euler steps of the old policy from ``sigmas[step]``."""
    last = len(policy.sigmas) - 1
    count = min(_SHARP_STEPS, last - step)
    stops = np.unique(np.linspace(step, last, count + 1).round().astype(int))
    x = x_t
    for here, there in pairwise(stops.tolist()):
        level, below = policy.sigmas[here], policy.sigmas[there]
        estimate = policy.estimate(x, level.expand(len(x)), condition)
        # Both x_0 and noise estimates stay, at the next level's mixture: an Euler step.
        x = estimate + (below / level).to(x) * (x - estimate)
    return x


def _draw(
    policy: Any, prompts: Sequence[str], settings: ProfileSettings, generator: Generator
) -> _Given:
    order = torch.randperm(len(prompts), generator=generator)[: settings.prompts].tolist()
    if len(order) < 2:
        raise ConfigError([f"prompts.set: a profile needs 2 prompts or more, got {len(prompts)}"])
    chosen = [prompts[i] for i in order]
    groups = np.repeat(np.arange(len(chosen)), settings.per_prompt)
    condition = policy.encode(chosen).take(torch.from_numpy(groups))
    rollout = policy.rollout(condition, generator, {})
    return _Given(rollout.x_0, [chosen[g] for g in groups], groups, condition)


def read_image_list(folder: Path) -> list[ImageRecord]:
    """Lines of ``metadata.jsonl``; columns that are not ours are left out.

    Raises:
        DataError: It is missing or a line is broken.
        ConfigError: Fewer than two prompts have two images or more.
    """
    path = folder / "metadata.jsonl"
    if not path.is_file():
        raise DataError("no such file; --images needs file_name, prompt, prompt_id", path=path)
    found = []
    for number, text in read_lines(path):
        try:
            row = {k: v for k, v in json.loads(text).items() if k in ImageRecord.model_fields}
            found.append(ImageRecord.model_validate(row))
        except (ValueError, AttributeError) as error:
            first = str(error).splitlines()[0]
            raise DataError(f"no image record ({first})", path=path, line=number) from error
    counts = Counter(record.prompt for record in found)
    several = sum(count >= 2 for count in counts.values())
    if several < 2:
        raise ConfigError(
            [
                f"--images {folder}: images are compared within a prompt, so 2 prompts or more "
                f"must have 2 images or more, and {several} of {len(counts)} prompts have them"
            ]
        )
    return found


@torch.no_grad()
def _encode(policy: Any, plan: Plan, folder: Path, records: Sequence[ImageRecord]) -> _Given:
    """Latents of given images, at the policy's own resolution."""
    pipeline = getattr(policy, "pipeline", None)
    if pipeline is None:
        raise ConfigError([f"--images: model.kind {plan.policy.name} has no image encoder"])
    side = getattr(plan.policy_config, "resolution", None)
    side = side or pipeline.transformer.config.sample_size * pipeline.vae_scale_factor
    vae, latents = pipeline.vae, []
    for record in records:
        pixels = load_image(find_file(folder, record.file_name), sha256=record.sha256).pixels
        value = torch.from_numpy(_square(pixels, side)).permute(2, 0, 1)[None].float() / 127.5 - 1
        mean = vae.encode(value.to(vae.device, vae.dtype)).latent_dist.mean.float()
        latents.append((mean - (vae.config.shift_factor or 0.0)) * vae.config.scaling_factor)
    texts = [record.prompt for record in records]
    unique = list(dict.fromkeys(texts))
    groups = np.array([unique.index(text) for text in texts])
    condition = policy.encode(unique).take(torch.from_numpy(groups))
    return _Given(torch.cat(latents), texts, groups, condition)


def _square(pixels: np.ndarray, side: int) -> np.ndarray:
    """The middle square of an image, resized to ``side``."""
    height, width = pixels.shape[:2]
    short = min(height, width)
    top, left = (height - short) // 2, (width - short) // 2
    cut = Image.fromarray(pixels[top : top + short, left : left + short])
    return np.array(cut.resize((side, side), Image.Resampling.BICUBIC))
