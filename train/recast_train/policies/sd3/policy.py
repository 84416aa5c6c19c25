"""The SD3 policy: one pipeline, two adapters, and the sampler of the recipe."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import Parameter

from recast_eval.content import content
from recast_eval.errors import ConfigError
from recast_train.policies._windows import Window, find_window
from recast_train.policies.base import Condition, PolicySetup, Rollout, Who
from recast_train.policies.sd3.adapters import Adapters
from recast_train.policies.sd3.config import Sd3Config
from recast_train.policies.sd3.sampling import (
    Rows,
    Stochastic,
    complete,
    draw_noise,
    explore,
    integrate,
)
from recast_train.policies.sd3.sharding import shard_frozen
from recast_train.policies.sd3.text import PromptEncoder
from recast_train.rngs import derive_seed
from recast_train.sde import step_stds, visible


def build(config: Sd3Config, setup: PolicySetup) -> "Sd3Policy":
    """Load the pipeline that a recipe names.

    Raises:
        ConfigError: There is no such pipeline, or it is not an SD3.
        MissingError: The starter is not installed.
    """
    from diffusers import StableDiffusion3Pipeline

    base = str(content("train/starter")) if config.base == "starter" else config.base
    dtype = torch.bfloat16 if _half(setup) else torch.float32
    try:
        parts = StableDiffusion3Pipeline.load_config(base)
        # A folder without T5 must be told so: diffusers holds T5 for required.
        absent = {n: None for n in ("text_encoder_3", "tokenizer_3") if not parts.get(n, [None])[0]}
        pipeline = StableDiffusion3Pipeline.from_pretrained(base, dtype=dtype, **absent)
    except (OSError, ValueError) as error:
        raise ConfigError([f"model.base: cannot load {base}: {error}"]) from error
    return Sd3Policy(pipeline, config, setup)


def _half(setup: PolicySetup) -> bool:
    return setup.precision == "bf16"


class Sd3Policy:
    """Draws with ``old``, trains ``new``, remembers the base as ``reference``.

    Args:
        pipeline: A ``StableDiffusion3Pipeline``, with or without T5.
        config: The recipe's ``model:`` block.
        setup: The sampler, precision and device.

    Raises:
        ConfigError: The resolution does not fit the model, or a LoRA target names nothing.
    """

    def __init__(self, pipeline: Any, config: Sd3Config, setup: PolicySetup) -> None:
        self._setup = setup
        self._precision = setup.precision
        self._device = torch.device(setup.device)
        pipeline.set_progress_bar_config(disable=True)
        self.pipeline = pipeline.to(torch.device(config.text_device or setup.device))
        pipeline.transformer.to(self._device)
        pipeline.vae.to(self._device)
        self._decode_batch = config.decode_batch
        self._transformer = pipeline.transformer.eval()
        self._vae = pipeline.vae.eval().requires_grad_(False)
        if self._vae.dtype != torch.float32:
            self._vae = self._vae.float()
        generator = Generator().manual_seed(setup.seed)
        self.adapters = Adapters(self._transformer, config.lora, generator)
        if config.gradient_checkpointing:
            self._transformer.enable_gradient_checkpointing()
        if setup.shard:
            whole = (*self.adapters.new.values(), *self.adapters.old.values())
            shard_frozen(self._transformer, whole, self._device.type)
        self._encoder = PromptEncoder(
            pipeline, config.max_sequence_length, config.text_device or setup.device
        )
        self._latent = self._latent_shape(config.resolution)
        self.sigmas = self._levels(setup)

    def _latent_shape(self, resolution: int | None) -> tuple[int, int, int]:
        cfg, scale = self._transformer.config, self.pipeline.vae_scale_factor
        side = cfg.sample_size if resolution is None else resolution // scale
        grid = scale * cfg.patch_size
        if resolution is not None and resolution % grid:
            raise ConfigError([f"model.resolution: must be a multiple of {grid}, got {resolution}"])
        if side > cfg.pos_embed_max_size * cfg.patch_size:
            limit = cfg.pos_embed_max_size * grid
            raise ConfigError([f"model.resolution: at most {limit}, got {resolution}"])
        return (cfg.in_channels, side, side)

    def _levels(self, setup: PolicySetup) -> Tensor:
        scheduler = self.pipeline.scheduler
        if setup.shift is not None:
            scheduler = type(scheduler).from_config(scheduler.config, shift=setup.shift)
        extra = {}
        if scheduler.config.use_dynamic_shifting:
            from diffusers.pipelines.stable_diffusion_3.pipeline_stable_diffusion_3 import (
                calculate_shift,
            )

            patches = (self._latent[1] // self._transformer.config.patch_size) ** 2
            cfg = scheduler.config
            extra["mu"] = calculate_shift(
                patches,
                cfg.base_image_seq_len,
                cfg.max_image_seq_len,
                cfg.base_shift,
                cfg.max_shift,
            )
        scheduler.set_timesteps(setup.steps, device="cpu", **extra)
        sigmas: Tensor = scheduler.sigmas.float().clone()
        return sigmas

    def parameters(self) -> list[Parameter]:
        """The ``new`` adapter's, in a fixed order."""
        return list(self.adapters.new.values())

    @property
    def on_policy(self) -> bool:
        """Whether ``old`` and ``new`` are the same numbers, so that one forward serves both."""
        return self.adapters.on_policy

    def encode(self, prompts: Sequence[str]) -> Condition:
        """Embeddings of each prompt; no graph, remembered."""
        return self._encoder(prompts)

    def rollout(self, condition: Condition, generator: Generator, plan: dict[str, Any]) -> Rollout:
        """Draw one latent a row with the ``old`` weights; see ``Policy.rollout``.

        ``plan``: ``solver`` (``euler``, ``dpm2``, ``sde``, ``cps``), ``noise_level`` and
        ``window`` (see ``find_window``) of the latter two; ``shared_noise``: a group, that is
        ``group_size`` rows, starts from one noise; ``rows`` and ``epoch``.
        """
        count = len(condition.tensors["embeds"])
        rows: Rows = plan.get("rows", (0, count, count))
        copies = plan["group_size"] if plan.get("shared_noise") else 1
        noise = draw_noise(self._latent, rows, generator, copies=copies).to(self._device)
        solver = plan.get("solver") or self._setup.solver

        def velocity(x: Tensor, sigma: Tensor) -> Tensor:
            return self._batched(x, sigma, condition, "old")

        with torch.no_grad(), self.adapters.merged("old"), self._drawing():
            if solver not in ("sde", "cps"):
                x_0 = integrate(velocity, noise, self.sigmas.to(noise), solver=solver)
                return Rollout(x_0, condition)
            how = Stochastic(
                solver, plan["noise_level"], self._window(solver, plan, rows[2], generator)
            )
            trace = explore(velocity, noise, self.sigmas.to(noise), how, rows, generator)
            return Rollout(trace["states"][:, -1].clone(), condition, trace)

    def _window(
        self, solver: Any, plan: dict[str, Any], samples: int, generator: Generator
    ) -> Window:
        """Where this rollout is stochastic; a random place is one for all batches of an epoch."""
        spec, epoch = plan.get("window"), plan.get("epoch", 0)
        if spec is not None and spec["kind"] == "random":
            generator = Generator().manual_seed(derive_seed(self._setup.seed, "window", epoch))
        stds = step_stds(self.sigmas, solver=solver, noise_level=plan["noise_level"])
        steps = len(stds)
        last = 1 + int(visible(stds).nonzero().max())
        return find_window(spec, samples, steps, epoch=epoch, generator=generator, visible=last)

    def _batched(self, x: Tensor, sigma: Tensor, condition: Condition, who: Who) -> Tensor:
        size = self._setup.rollout_batch or len(x)
        parts = [
            self.velocity(x[i : i + size], sigma[i : i + size], part, who=who)
            for i in range(0, len(x), size)
            for part in [condition.take(torch.arange(i, min(i + size, len(x))))]
        ]
        return torch.cat(parts)

    def velocity(self, x_t: Tensor, sigma: Tensor, condition: Condition, *, who: Who) -> Tensor:
        """Velocity at x_t in float32; a graph is kept for ``new`` alone."""
        graph = who == "new" and torch.is_grad_enabled()
        with torch.set_grad_enabled(graph), self.adapters.use(who):
            guided = self._forward(x_t, sigma, condition)
            scale = self._setup.guidance_scale
            if scale == 1.0:
                return guided
            with torch.no_grad():
                nothing = self._encoder([""]).take(torch.zeros(len(x_t), dtype=torch.long))
                plain = self._forward(x_t, sigma, nothing)
            return plain + scale * (guided - plain)

    def _forward(self, x_t: Tensor, sigma: Tensor, condition: Condition) -> Tensor:
        # Floats all the way: a timestep cut to an integer is another noise level than the loss's.
        timestep = sigma.to(self._device) * self.pipeline.scheduler.config.num_train_timesteps
        dtype = self._transformer.dtype
        with self._autocast():
            found = self._transformer(
                hidden_states=x_t.to(self._device, dtype),
                timestep=timestep,
                encoder_hidden_states=condition.tensors["embeds"].to(self._device, dtype),
                pooled_projections=condition.tensors["pooled"].to(self._device, dtype),
                return_dict=False,
            )[0]
        result: Tensor = found.float()
        return result

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Compute in the rollout's precision."""
        self._precision = self._setup.rollout_precision or self._setup.precision
        try:
            yield
        finally:
            self._precision = self._setup.precision

    def _autocast(self) -> AbstractContextManager[Any]:
        if self._precision == "fp32":
            return nullcontext()
        return torch.autocast(self._device.type, torch.bfloat16)

    @property
    def nominal_masks(self) -> None:
        """None: nothing is masked."""
        return None

    def noised(self, x_0: Tensor, step: int, noise: Tensor) -> Tensor:
        """Finished latents at ``sigmas[step]``."""
        sigma = self.sigmas[step].to(x_0)
        return (1 - sigma) * x_0 + sigma * noise.to(x_0)

    @torch.no_grad()
    def estimate(self, x_t: Tensor, sigma: Tensor, condition: Condition) -> Tensor:
        """The old policy's x_0: ``x_t - sigma * velocity``."""
        level = sigma.to(x_t).reshape(-1, *(1,) * (x_t.ndim - 1))
        return x_t - level * self._batched(x_t, sigma.to(x_t), condition, "old")

    def features(self, x_0: Tensor) -> np.ndarray:
        """(B, 2C) mean and deviation of each latent channel."""
        flat = x_0.flatten(2)
        pooled = torch.cat([flat.mean(dim=2), flat.std(dim=2, correction=0)], dim=1)
        return pooled.cpu().numpy().astype(np.float64)

    def complete(
        self,
        x_t: Tensor,
        step: int,
        condition: Condition,
        generator: Generator,
        *,
        rows: Rows | None = None,
    ) -> Tensor:
        """One ancestral draw of x_0 from x at ``sigmas[step]``."""

        def velocity(x: Tensor, sigma: Tensor) -> Tensor:
            return self._batched(x, sigma, condition, "old")

        with torch.no_grad(), self.adapters.merged("old"):
            return complete(velocity, x_t, self.sigmas[step:].to(x_t), generator, rows)

    @torch.no_grad()
    def decode(self, x_0: Tensor) -> np.ndarray:
        """Latents to uint8 RGB images (N, H, W, 3)."""
        cfg = self._vae.config
        parts = []
        for latents in torch.split(x_0, self._decode_batch):
            scaled = latents.to(self._device, torch.float32) / cfg.scaling_factor
            pixels = self._vae.decode(scaled + (cfg.shift_factor or 0.0), return_dict=False)[0]
            bytes_ = ((pixels / 2 + 0.5).clamp(0, 1) * 255).round().to(torch.uint8)
            parts.append(bytes_.permute(0, 2, 3, 1).cpu().numpy())
        return np.concatenate(parts)

    def save_adapter(self, folder: Path, weights: Sequence[Tensor] | None = None) -> None:
        """Write a LoRA that ``diffusers`` and ``peft`` load without us."""
        self.adapters.save(folder, weights)

    def update_old(self, decay: float) -> None:
        """Set old <- decay * old + (1 - decay) * new."""
        self.adapters.update_old(decay)

    def state(self) -> dict[str, Any]:
        """Both adapters' weights."""
        return self.adapters.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Put back what ``state`` gave."""
        self.adapters.load_state(state)
