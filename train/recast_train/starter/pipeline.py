"""The starter's parts, untrained: real SD3 classes at small size, and a tokenizer of its words."""

from typing import Any, Final

import torch
from diffusers import (
    AutoencoderKL,
    FlowMatchEulerDiscreteScheduler,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
)
from transformers import (
    CLIPTextConfig,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    T5Tokenizer,
)

from recast_eval.scorers.world import BACKGROUNDS, COLORS, RELATIONS, SHAPES
from recast_eval.scorers.world.scene import NUMBERS

TOKENS: Final = 16
"""Length of a tokenised caption."""
TRANSFORMER: Final[dict[str, Any]] = {
    "sample_size": 16,
    "patch_size": 2,
    "in_channels": 4,
    "out_channels": 4,
    "num_layers": 5,
    "attention_head_dim": 32,
    "num_attention_heads": 4,
    "joint_attention_dim": 128,
    "caption_projection_dim": 128,
    "pooled_projection_dim": 128,
    "pos_embed_max_size": 16,
    "qk_norm": "rms_norm",
}
_TEXT: Final[dict[str, Any]] = {
    "hidden_size": 64,
    "intermediate_size": 256,
    "projection_dim": 64,
    "num_attention_heads": 4,
    "max_position_embeddings": TOKENS,
}


def _words() -> list[str]:
    plural = [s + ("es" if s.endswith("s") else "s") for s in SHAPES]
    relations = [w for r in RELATIONS for w in r.split()]
    words = ["a", "an", "and", "on", "in", "the", "word", "card", *relations, *NUMBERS]
    return list(dict.fromkeys([*words, *COLORS, *BACKGROUNDS, *SHAPES, *plural]))


def build_tokenizer() -> CLIPTokenizer:
    """A CLIP tokenizer that knows the captions' words whole and spells everything else."""
    from tokenizers.pre_tokenizers import ByteLevel

    letters = sorted(ByteLevel.alphabet())
    vocab = ["<|startoftext|>", "<|endoftext|>", *letters, *(c + "</w>" for c in letters)]
    merges: list[tuple[str, str]] = []
    for word in _words():
        # Join from the end (d</w>, rd</w>, ord</w>, word</w>): every merge then needs the end of
        # a word, so that the letters of a spelled word stay single almost always.
        token = word[-1] + "</w>"
        for letter in reversed(word[:-1]):
            merge, token = (letter, token), letter + token
            if merge not in merges:
                merges.append(merge)
            if token not in vocab:
                vocab.append(token)
    return CLIPTokenizer(
        vocab={t: i for i, t in enumerate(vocab)},
        merges=merges,
        model_max_length=TOKENS,
    )


def build_unused_tokenizer() -> T5Tokenizer:
    """A T5 tokenizer that nothing asks.

    With one on disk, ``text_encoder_3=None`` is all that diffusers must be told to load the folder.
    """
    pieces = ["<pad>", "</s>", "<unk>", "\u2581", *"abcdefghijklmnopqrstuvwxyz"]
    return T5Tokenizer(vocab=[(p, -float(i)) for i, p in enumerate(pieces)], extra_ids=0)


def build_text_encoder(tokenizer: CLIPTokenizer, layers: int) -> CLIPTextModelWithProjection:
    """An untrained CLIP text encoder over the tokenizer's vocabulary."""
    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        num_hidden_layers=layers,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **_TEXT,
    )
    return CLIPTextModelWithProjection(config)


def build_pipeline(vae: AutoencoderKL, seed: int) -> StableDiffusion3Pipeline:
    """Put an untrained pipeline together around a trained autoencoder."""
    torch.manual_seed(seed)
    tokenizer = build_tokenizer()
    return StableDiffusion3Pipeline(
        transformer=SD3Transformer2DModel(**TRANSFORMER),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=vae,
        text_encoder=build_text_encoder(tokenizer, layers=3),
        tokenizer=tokenizer,
        text_encoder_2=build_text_encoder(tokenizer, layers=2),
        tokenizer_2=tokenizer,
        text_encoder_3=None,
        tokenizer_3=build_unused_tokenizer(),
    )
