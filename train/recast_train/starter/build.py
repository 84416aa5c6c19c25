"""Rebuild the starter from nothing: draw, autoencode, pre-train, save. Each stage resumes."""

import logging
import shutil
from pathlib import Path
from typing import Final

import torch
from diffusers import AutoencoderKL, StableDiffusion3Pipeline

from recast_train.starter.autoencoder import draw_cards, encode, train_autoencoder
from recast_train.starter.pipeline import build_pipeline
from recast_train.starter.pretrain import Cards, load_cards, pretrain, save_cards, tokenize

log = logging.getLogger(__name__)

VAE_CARDS: Final = 20_000
CARDS: Final = 36_000


def build_starter(work: Path, out: Path, *, vae_steps: int, steps: int, seed: int) -> None:
    """Make the starter's diffusers folder in ``out``.

    Args:
        work: Folder for resumable state and cached latents; may be deleted afterwards.
        out: Receives the finished pipeline (bfloat16 safetensors), replaced as a whole.
        vae_steps: Optimiser steps of the autoencoder.
        steps: Optimiser steps of the transformer and text encoders.
        seed: Of everything; data use ``seed`` and ``seed + 1``.
    """
    work.mkdir(parents=True, exist_ok=True)
    pipeline = build_pipeline(_autoencoder(work, vae_steps, seed), seed)
    cards = _cards(work, pipeline, seed)
    for done in pretrain(pipeline, cards, work, steps=steps, seed=seed + 2):
        if done >= steps:
            save_pipeline(pipeline, out)
            log.info("starter saved to %s", out)


def save_pipeline(pipeline: StableDiffusion3Pipeline, out: Path) -> None:
    """Write the pipeline's parts beside what else ``out`` holds (towers, model card).

    Transformer and autoencoder are stored in bfloat16 and load as float32. The text encoders,
    which transformers loads in the type that they are stored in, stay float32.
    """
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    pipeline.transformer.to(torch.bfloat16)
    pipeline.vae.to(torch.bfloat16)
    for module in (pipeline, pipeline.transformer, pipeline.vae):
        module.register_to_config(_name_or_path="")  # where it once lay is nobody's business
    pipeline.save_pretrained(part, safe_serialization=True)
    out.mkdir(parents=True, exist_ok=True)
    for item in part.iterdir():
        target = out / item.name
        if target.is_dir():
            shutil.rmtree(target)
        item.replace(target)
    part.rmdir()


def _autoencoder(work: Path, steps: int, seed: int) -> AutoencoderKL:
    folder = work / "vae"
    if not (folder / "config.json").exists():
        _, pixels = draw_cards(VAE_CARDS, seed)
        train_autoencoder(work, pixels, steps=steps, seed=seed).save_pretrained(folder)
    return AutoencoderKL.from_pretrained(folder).eval().requires_grad_(False)


def _cards(work: Path, pipeline: StableDiffusion3Pipeline, seed: int) -> Cards:
    path = work / "cards.safetensors"
    if not path.exists():
        captions, pixels = draw_cards(CARDS, seed + 1)
        latents = encode(pipeline.vae, pixels).to(torch.bfloat16)
        save_cards(path, Cards(latents, tokenize(pipeline, captions)))
    return load_cards(path)
