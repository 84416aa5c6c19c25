"""A random SD3 pipeline that is small enough for unit tests: real classes, no meaning."""

from pathlib import Path

import torch
from diffusers import (
    AutoencoderKL,
    FlowMatchEulerDiscreteScheduler,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
)
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    CLIPTextConfig,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    T5Config,
    T5EncoderModel,
    T5TokenizerFast,
)

TOKENS = 12
SIDE = 16
"""Pixels."""


def tiny_tokenizer() -> CLIPTokenizer:
    """Spells every word byte by byte."""
    letters = sorted(ByteLevel.alphabet())
    vocab = ["<|startoftext|>", "<|endoftext|>", *letters, *(c + "</w>" for c in letters)]
    return CLIPTokenizer(
        vocab={token: i for i, token in enumerate(vocab)}, merges=[], model_max_length=TOKENS
    )


def _clip(tokenizer: CLIPTokenizer) -> CLIPTextModelWithProjection:
    return CLIPTextModelWithProjection(
        CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=32,
            projection_dim=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=TOKENS,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=1,
        )
    )


def _t5() -> tuple[T5EncoderModel, T5TokenizerFast]:
    words = ["<pad>", "</s>", "<unk>", "▁a", "▁red", "▁card", "▁"]
    vocab = [(w, -float(i)) for i, w in enumerate(words)]
    encoder = T5EncoderModel(
        T5Config(vocab_size=128, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    )
    return encoder, T5TokenizerFast(vocab=vocab, extra_ids=0)


def tiny_sd3(*, t5: bool = False, seed: int = 0) -> StableDiffusion3Pipeline:
    """Put an untrained pipeline together: 2 joint blocks of width 16, 4x4x4 latents."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        tokenizer = tiny_tokenizer()
        encoder_3, tokenizer_3 = _t5() if t5 else (None, None)
        return StableDiffusion3Pipeline(
            transformer=SD3Transformer2DModel(
                sample_size=4,
                patch_size=2,
                in_channels=4,
                out_channels=4,
                num_layers=2,
                attention_head_dim=8,
                num_attention_heads=2,
                joint_attention_dim=32,
                caption_projection_dim=16,
                pooled_projection_dim=32,
                pos_embed_max_size=4,
                dual_attention_layers=(0,),
                qk_norm="rms_norm",
            ),
            scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
            vae=AutoencoderKL(
                in_channels=3,
                out_channels=3,
                down_block_types=("DownEncoderBlock2D",) * 3,
                up_block_types=("UpDecoderBlock2D",) * 3,
                block_out_channels=(8, 8, 8),
                layers_per_block=1,
                latent_channels=4,
                norm_num_groups=4,
                sample_size=SIDE,
                mid_block_add_attention=False,
                use_quant_conv=False,
                use_post_quant_conv=False,
                scaling_factor=0.7,
                shift_factor=0.1,
            ),
            text_encoder=_clip(tokenizer),
            tokenizer=tokenizer,
            text_encoder_2=_clip(tokenizer),
            tokenizer_2=tokenizer,
            text_encoder_3=encoder_3,
            tokenizer_3=tokenizer_3,
        )


def save_tiny_sd3(folder: Path, *, t5: bool = False, seed: int = 0) -> Path:
    """Write the pipeline as a diffusers folder and return it."""
    tiny_sd3(t5=t5, seed=seed).save_pretrained(folder)
    return folder
