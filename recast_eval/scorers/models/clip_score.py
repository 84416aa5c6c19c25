"""CLIPScore: cosine of OpenAI's CLIP ViT-L/14 (Hessel et al. 2021, arXiv:2104.08718)."""

from typing import Final

from recast_eval.scorers.base import Scorer, ScorerCard, ScorerSpec
from recast_eval.scorers.needed import CLIP_TOKENIZER, pretrained

CARD: Final = ScorerCard(
    name="clip-score",
    version=1,
    family="openai-clip",
    what="the picture shows what the prompt says, as CLIP sees it",
    unit="cosine (papers print it, or 100 times it)",
    low=-1.0,
    high=1.0,
    text_limit=77,
    needs=("weights openai/clip-vit-large-patch14",),
    source="https://github.com/openai/CLIP",
    licence="MIT",
    weights="openai/clip-vit-large-patch14",
    preprocessing="bicubic to 224, centre crop",
)


PARTS: Final = (pretrained(CARD.weights, tokenizer=CLIP_TOKENIZER),)


def build(*, device: str = "cpu", weights: str | None = None) -> Scorer:
    """See ``ScorerFactory``."""
    from recast_eval.scorers.clip import Clip, CosineScorer
    from recast_eval.scorers.weights import check_files

    check_files(CARD, weights, PARTS)
    return CosineScorer(CARD, Clip.load(CARD, weights, device), scale=1.0)


SPEC: Final = ScorerSpec(CARD, build, parts=PARTS)
