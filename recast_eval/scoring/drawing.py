"""Draw a model's images with diffusers; each image depends on its own seed alone."""

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from recast_eval.content.prompts import Prompt
from recast_eval.errors import ConfigError, DataError
from recast_eval.scoring.sources import ADAPTER, ModelSource

log = logging.getLogger(__name__)
_KEYS: Final = ("steps", "guidance_scale", "shift", "resolution", "max_sequence_length", "solver")
SOLVERS: Final = ("euler", "dpm2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """How images are drawn, at the pipeline's own noise levels."""

    steps: int = 28
    guidance_scale: float = 7.0
    """Classifier-free guidance; 1 and less is none."""
    shift: float | None = None
    """Of the noise levels; None is the pipeline's."""
    resolution: int | None = None
    """Pixels a side; None is the pipeline's."""
    max_sequence_length: int | None = None
    """Text tokens of a third encoder; None is the pipeline's."""
    solver: str = "euler"
    """``dpm2`` for a policy that was trained on rollouts of second order; else the pipeline's own
    scheduler, which is Euler's for SD3."""

    @classmethod
    def from_facts(cls, facts: dict[str, Any], overrides: dict[str, Any]) -> "Sampler":
        """Settings of training, each replaced where ``overrides`` gives one.

        Raises:
            ConfigError: A value is of the wrong type or out of range.
        """
        given = {k: facts[k] for k in _KEYS if facts.get(k) is not None}
        given |= {k: v for k, v in overrides.items() if v is not None}
        sampler = cls(**given)
        problems = [
            f"{k}: must be a positive number, got {v!r}"
            for k, v in asdict(sampler).items()
            if k != "solver"
            and v is not None
            and (isinstance(v, bool) or not isinstance(v, int | float) or v <= 0)
        ]
        if sampler.solver not in SOLVERS:
            problems.append(f"solver: must be {' or '.join(SOLVERS)}, got {sampler.solver!r}")
        if problems:
            raise ConfigError(problems)
        return sampler


@dataclass(frozen=True, slots=True)
class Job:
    """One image to be drawn."""

    prompt: Prompt
    sample: int

    def seed(self, seed: int) -> int:
        """Of its noise: a function of the evaluation's seed, the prompt's id and the sample."""
        text = f"{seed}\0{self.prompt.prompt_id}\0{self.sample}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])

    def file_name(self) -> str:
        """Readable, safe, unique."""
        kept = "".join(c if (c.isalnum() and c.isascii()) or c in "-_" else "-" for c in self.key())
        mark = hashlib.sha256(self.key().encode()).hexdigest()[:8]
        plain = kept == self.key() and len(kept) <= 80
        stem = kept if plain else f"{kept[:60].strip('-')}-{mark}"
        return f"{stem}-{self.sample}.png"

    def key(self) -> str:
        """The prompt's id."""
        return self.prompt.prompt_id


def plan_blocks(prompts: Sequence[Prompt], samples: int, batch: int) -> list[list[Job]]:
    """Group images into batches that never change, however often a run is stopped."""
    return [
        [Job(p, sample) for p in prompts[i : i + batch]]
        for sample in range(samples)
        for i in range(0, len(prompts), batch)
    ]


Draw = Callable[[Sequence[Job]], np.ndarray]
"""Jobs to float images (N, H, W, 3) in [0, 1]."""


def load_drawer(source: ModelSource, sampler: Sampler, *, seed: int, device: str) -> Draw:
    """Load a pipeline, with the adapter if there is one.

    Args:
        source: Checkpoint or pipeline.
        sampler: How to draw.
        seed: Of the evaluation.
        device: ``cpu``, ``cuda``, ...

    Raises:
        ConfigError: The pipeline cannot be loaded.
        DataError: The adapter does not fit it.
    """
    pipeline = _pipeline(source.base, device)
    if source.kind == "checkpoint" and source.path is not None:
        _add_adapter(pipeline, source.path / "adapter")
    _set_scheduler(pipeline, sampler)
    pipeline.set_progress_bar_config(disable=True)
    options: dict[str, Any] = {
        "num_inference_steps": sampler.steps,
        "guidance_scale": sampler.guidance_scale,
    }
    if sampler.resolution:
        options |= {"height": sampler.resolution, "width": sampler.resolution}
    if sampler.max_sequence_length:
        options["max_sequence_length"] = sampler.max_sequence_length

    def draw(jobs: Sequence[Job]) -> np.ndarray:
        import torch

        noise = [torch.Generator("cpu").manual_seed(j.seed(seed)) for j in jobs]
        texts = [j.prompt.prompt for j in jobs]
        with torch.inference_mode():
            drawn = pipeline(prompt=texts, generator=noise, output_type="np", **options)
        return np.asarray(drawn.images)

    return draw


def _set_scheduler(pipeline: Any, sampler: Sampler) -> None:
    kind, config = type(pipeline.scheduler), pipeline.scheduler.config
    if sampler.solver == "dpm2":
        from recast_eval.scoring.second_order import SecondOrderScheduler

        if kind.__name__ != "FlowMatchEulerDiscreteScheduler":
            raise ConfigError([f"solver dpm2: needs a flow-matching pipeline, not {kind.__name__}"])
        kind = SecondOrderScheduler
    if sampler.shift is not None or kind is not type(pipeline.scheduler):
        changes = {} if sampler.shift is None else {"shift": sampler.shift}
        pipeline.scheduler = kind.from_config(config, **changes)


def _pipeline(base: str, device: str) -> Any:
    import torch
    from diffusers import DiffusionPipeline
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    for noisy in (diffusers_logging, transformers_logging):  # their bars are not ours to show
        noisy.disable_progress_bar()
        noisy.set_verbosity_error()
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    try:
        index = DiffusionPipeline.load_config(base)
        # An SD3 saved without T5 lists neither of its parts; from_pretrained wants to be told.
        third = ("text_encoder_3", "tokenizer_3")
        sd3 = str(index.get("_class_name", "")).startswith("StableDiffusion3")
        absent = {n: None for n in third if sd3 and index.get(n, [None])[0] is None}
        pipeline = DiffusionPipeline.from_pretrained(
            base, dtype=dtype, use_safetensors=True, **absent
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError([f"{base}: cannot be loaded as a diffusers pipeline: {error}"]) from error
    return pipeline.to(device)


def _add_adapter(pipeline: Any, folder: Path) -> None:
    """Load it, then look: of tensors that fit nothing diffusers only logs, and draws the base."""
    from peft import get_peft_model_state_dict
    from safetensors import SafetensorError, safe_open

    path = folder / ADAPTER
    if not path.is_file():
        raise DataError("missing: without it the base model would be drawn", path=path)
    try:
        with safe_open(path, "pt") as file:
            given = set(file.keys())
        if not given:
            raise DataError("empty: the base model would be drawn", path=path)
        pipeline.load_lora_weights(
            str(folder), weight_name=ADAPTER, local_files_only=True, use_safetensors=True
        )
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise DataError(f"no adapter that fits the base model: {error}", path=path) from error
    model = getattr(pipeline, "transformer", None)
    taken = {
        f"transformer.{name}"
        for adapter in getattr(model, "peft_config", {})
        for name in get_peft_model_state_dict(model, adapter_name=adapter)
    }
    _check_taken(path, given, taken)


def _check_taken(path: Path, given: set[str], taken: set[str]) -> None:
    if unused := sorted(given - taken):
        raise DataError(
            f"the base model has no place for {len(unused)} of {len(given)} tensors, the first is "
            f"{unused[0]!r}: the adapter belongs to another model",
            path=path,
        )
    if lacking := sorted(taken - given):
        raise DataError(
            f"lacks {len(lacking)} of {len(taken)} tensors, the first is {lacking[0]!r}: save it "
            "again, whole",
            path=path,
        )


def to_bytes(images: np.ndarray) -> Iterator[np.ndarray | None]:
    """Float images in [0, 1] to uint8, or None where one is not finite."""
    for image in images:
        if not np.isfinite(image).all():
            yield None
        else:
            yield np.clip(np.rint(image * 255), 0, 255).astype(np.uint8)
