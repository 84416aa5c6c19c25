"""Pre-training of the SD3 starter: finished work is written again without a step."""

from pathlib import Path

import torch
from diffusers import AutoencoderKL, StableDiffusion3Pipeline
from torch import Generator, Tensor

from recast_train.starter.autoencoder import CONFIG
from recast_train.starter.pipeline import build_pipeline
from recast_train.starter.pretrain import Cards, pretrain, tokenize


def _run(pipeline: StableDiffusion3Pipeline, work: Path) -> list[tuple[int, Tensor]]:
    generator = Generator().manual_seed(0)
    captions = ["a red circle on a white card"] * 4
    cards = Cards(
        torch.randn(4, 4, 16, 16, generator=generator).bfloat16(), tokenize(pipeline, captions)
    )
    weight = next(pipeline.transformer.parameters())
    return [
        (done, weight.detach().clone()) for done in pretrain(pipeline, cards, work, steps=1, seed=0)
    ]


def test_finished_pre_training_yields_its_weights_once_more(tmp_path: Path) -> None:
    torch.manual_seed(0)
    vae = AutoencoderKL(**CONFIG)
    ((done, averaged),) = _run(build_pipeline(vae, 0), tmp_path)
    ((again, same),) = _run(build_pipeline(vae, 1), tmp_path)  # other weights before it resumes
    assert done == again == 1
    assert torch.equal(averaged, same)
