"""HPS v2.1: CLIP ViT-H/14 tuned on human choices (Wu et al. 2023, arXiv:2306.09341)."""

from typing import Any, Final

from recast_eval.scorers.base import Scorer, ScorerCard, ScorerSpec
from recast_eval.scorers.needed import CLIP_NAMES, CLIP_TOKENIZER, borrowed, converted

CARD: Final = ScorerCard(
    name="hpsv2",
    version=2,
    family="hpsv2",
    what="people would prefer this picture for the prompt",
    unit="cosine (about 0.2-0.35; the paper prints 100 times it)",
    low=-1.0,
    high=1.0,
    text_limit=77,
    needs=("weights xswu/HPSv2, file HPS_v2.1_compressed.pt, converted",),
    source="https://github.com/tgxs002/HPSv2",
    licence="Apache-2.0",
    weights="xswu/HPSv2",
    revision="v2.1",
    preprocessing="bicubic to a longer side of 224, black bars, OpenAI mean and deviation",
)
FILE: Final = "hpsv2.safetensors"
"""open_clip's tensors under their own names (docs/scorers.md says how to make it)."""


def config() -> Any:
    """CLIP ViT-H/14 as open_clip builds it."""
    from transformers import CLIPConfig

    text = {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "hidden_act": "gelu",
        "eos_token_id": 49407,
        "bos_token_id": 49406,
        "pad_token_id": 0,
    }
    vision = {
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
        "patch_size": 14,
        "hidden_act": "gelu",
    }
    return CLIPConfig(text_config=text, vision_config=vision, projection_dim=1024)


PUBLISHED: Final = "HPS_v2.1_compressed.pt"
PARTS: Final = (
    borrowed("openai/clip-vit-large-patch14", CLIP_TOKENIZER, CLIP_NAMES),
    converted(
        FILE,
        f"hf download {CARD.weights} {PUBLISHED} --local-dir .",
        PUBLISHED,
        ("visual.proj", "text_projection", "visual.transformer.resblocks.0.ln_1.weight"),
    ),
)


def build(*, device: str = "cpu", weights: str | None = None) -> Scorer:
    """See ``ScorerFactory``. The folder holds the tensors and a CLIP tokenizer."""
    from transformers import CLIPConfig, CLIPModel, CLIPTokenizer

    from recast_eval.scorers.clip import Clip, CosineScorer
    from recast_eval.scorers.open_clip import PaddedSquare, convert_open_clip
    from recast_eval.scorers.weights import (
        check_files,
        load_into,
        load_pretrained,
        read_tensors,
        sized_config,
    )

    check_files(CARD, weights, PARTS)
    tensors = convert_open_clip(read_tensors(CARD, weights, FILE))
    model = CLIPModel(sized_config(CLIPConfig, CARD, weights, config()))
    load_into(model, tensors, CARD)
    tokenizer = load_pretrained(CLIPTokenizer, CARD, weights)
    processor = PaddedSquare(model.config.vision_config.image_size)
    return CosineScorer(CARD, Clip(model, tokenizer, processor, device), scale=1.0)


SPEC: Final = ScorerSpec(CARD, build, parts=PARTS)
