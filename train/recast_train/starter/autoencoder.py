"""The starter's image autoencoder: 64x64 pixels to 16x16x4 latents, trained from nothing."""

import logging
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from diffusers import AutoencoderKL

from recast_eval.scorers.world import draw_card, write_caption
from recast_train.starter.scenes import sample_scene
from recast_train.tensorfile import load_state, save_state

log = logging.getLogger(__name__)

CONFIG: Final[dict[str, Any]] = {
    "in_channels": 3,
    "out_channels": 3,
    "down_block_types": ["DownEncoderBlock2D"] * 3,
    "up_block_types": ["UpDecoderBlock2D"] * 3,
    "block_out_channels": [16, 32, 64],
    "layers_per_block": 1,
    "latent_channels": 4,
    "norm_num_groups": 8,
    "sample_size": 64,
    "mid_block_add_attention": False,
    "use_quant_conv": False,
    "use_post_quant_conv": False,
    "force_upcast": False,
}
KL_WEIGHT: Final = 1e-4


def draw_cards(count: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Draw captioned cards: captions, and uint8 pixels of shape (count, 64, 64, 3)."""
    rng = np.random.default_rng(seed)
    scenes = [sample_scene(rng) for _ in range(count)]
    pixels = np.stack([np.asarray(draw_card(s, rng)) for s in scenes])
    return [write_caption(s) for s in scenes], pixels


def to_model_range(pixels: np.ndarray) -> torch.Tensor:
    """uint8 (N, H, W, 3) to float32 (N, 3, H, W) in [-1, 1]."""
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1


def train_autoencoder(work: Path, pixels: np.ndarray, *, steps: int, seed: int) -> AutoencoderKL:
    """Train, or resume from ``work``; returns the model with ``scaling_factor`` measured."""
    torch.manual_seed(seed)
    vae = AutoencoderKL(**CONFIG).train()
    optimizer = torch.optim.AdamW(vae.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=2e-3, total_steps=steps, pct_start=0.05
    )
    rng = torch.Generator().manual_seed(seed)
    start, state = 0, work / "autoencoder.safetensors"
    if state.exists():
        saved = load_state(state)
        vae.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["schedule"])
        rng.set_state(saved["rng"])
        start = saved["step"]
    for step in range(start, steps):
        x = to_model_range(pixels[torch.randint(len(pixels), (32,), generator=rng).numpy()])
        with torch.autocast("cpu", torch.bfloat16):
            posterior = vae.encode(x).latent_dist
            noise = torch.randn(posterior.mean.shape, generator=rng)
            y = vae.decode(posterior.mean + posterior.std * noise).sample.float()
        error = (y - x).abs().mean() + (y - x).square().mean()
        loss = error + KL_WEIGHT * posterior.kl().mean() / posterior.mean[0].numel() * 64
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(vae.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % 100 == 0 or step + 1 == steps:
            log.info("autoencoder step %d/%d: error %.4f", step + 1, steps, error.item())
            save_state(
                state,
                {
                    "model": vae.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "schedule": schedule.state_dict(),
                    "rng": rng.get_state(),
                    "step": step + 1,
                },
            )
    return _measured(vae.eval().requires_grad_(False), pixels[:2000])


def _measured(vae: AutoencoderKL, pixels: np.ndarray) -> AutoencoderKL:
    """Set the shift and scale that give latents mean 0 and deviation 1."""
    latents = torch.cat([vae.encode(to_model_range(p)).latent_dist.mean for p in _chunks(pixels)])
    vae.register_to_config(
        shift_factor=float(latents.mean()), scaling_factor=float(1 / latents.std())
    )
    return vae


def _chunks(pixels: np.ndarray, size: int = 100) -> list[np.ndarray]:
    return [pixels[i : i + size] for i in range(0, len(pixels), size)]


@torch.no_grad()
def encode(vae: AutoencoderKL, pixels: np.ndarray) -> torch.Tensor:
    """Normalised latents (N, 4, 16, 16), float32: the space in which SD3 denoises."""
    parts = [vae.encode(to_model_range(p)).latent_dist.mean for p in _chunks(pixels)]
    normal: torch.Tensor = (torch.cat(parts) - vae.config.shift_factor) * vae.config.scaling_factor
    return normal
