"""Tiny random masked models in aMUSEd's folder layout, for tests."""

from pathlib import Path

import torch
from diffusers import AmusedScheduler, UVit2DModel, VQModel

from recast_train.policies.base import PolicySetup
from recast_train.policies.masked.config import MaskedConfig
from recast_train.policies.masked.policy import MaskedPolicy, build
from recast_train.starter.pipeline import build_text_encoder, build_tokenizer

PALETTE = '{"cell": 16, "palette": [[220,38,38],[35,90,215],[250,250,250],[18,18,18]]}'


def write_model(folder: Path, *, grid: int = 4, codebook: int = 4, vq: bool = False) -> Path:
    """Save random parts: palette tokens, or a VQ model's as ``amused/amused-256`` has."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformer = UVit2DModel(
            hidden_size=32,
            in_channels=16,
            block_out_channels=16,
            num_res_blocks=1,
            block_num_heads=2,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            cond_embed_dim=64,
            encoder_hidden_size=64,
            micro_cond_encode_dim=4,
            micro_cond_embed_dim=20,
            vocab_size=codebook + 1,
            codebook_size=codebook,
            sample_size=grid,
        )
        tokenizer = build_tokenizer()
        text = build_text_encoder(tokenizer, layers=2)
        transformer.save_pretrained(folder / "transformer")
        text.save_pretrained(folder / "text_encoder")
        tokenizer.save_pretrained(folder / "tokenizer")
        AmusedScheduler(mask_token_id=codebook).save_pretrained(folder / "scheduler")
        if vq:
            _vq(codebook).save_pretrained(folder / "vqvae")
        else:
            (folder / "palette.json").write_text(PALETTE, encoding="utf-8")
    return folder


def _vq(codebook: int) -> VQModel:
    """aMUSEd's VQ model, with fewer and narrower blocks."""
    return VQModel(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        layers_per_block=1,
        latent_channels=4,
        num_vq_embeddings=codebook,
        norm_num_groups=4,
        sample_size=8,
        mid_block_add_attention=False,
        lookup_from_codebook=True,
    )


def make_policy(
    folder: Path, *, steps: int = 4, order: str = "random", guidance: float = 1.0, seed: int = 0
) -> MaskedPolicy:
    """Load what ``write_model`` saved."""
    setup = PolicySetup(
        steps=steps,
        guidance_scale=guidance,
        solver=order,
        shift=None,
        rollout_batch=0,
        precision="fp32",
        device="cpu",
        seed=seed,
    )
    return build(MaskedConfig(base=str(folder)), setup)
