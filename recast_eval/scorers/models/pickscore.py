"""PickScore: CLIP-H tuned on people's picks (Kirstain et al. 2023, arXiv:2305.01569)."""

from typing import Final

from recast_eval.scorers.base import Scorer, ScorerCard, ScorerSpec
from recast_eval.scorers.needed import CLIP_NAMES, CLIP_TOKENIZER, PICTURES, borrowed, pretrained

CARD: Final = ScorerCard(
    name="pickscore",
    version=1,
    family="pickscore",
    what="people would pick this picture for the prompt",
    unit="logit (about 15-25; training recipes divide it by 26; the cosine is in `detail`)",
    text_limit=77,
    needs=("weights yuvalkirstain/PickScore_v1",),
    source="https://github.com/yuvalkirstain/PickScore",
    licence="MIT",
    weights="yuvalkirstain/PickScore_v1",
    preprocessing="bicubic to 224, centre crop (the processor of laion/CLIP-ViT-H-14)",
)


PROCESSOR: Final = "laion/CLIP-ViT-H-14-laion2B-s32B-b79K"
"""Whose tokenizer and image processor the authors name."""
PARTS: Final = (
    pretrained(CARD.weights, pictures=()),
    borrowed(
        PROCESSOR,
        (*CLIP_TOKENIZER, *PICTURES),
        f"{CLIP_NAMES} preprocessor_config.json",
        hub=CARD.weights,
    ),
)


def build(*, device: str = "cpu", weights: str | None = None) -> Scorer:
    """See ``ScorerFactory``."""
    from recast_eval.scorers.clip import Clip, CosineScorer
    from recast_eval.scorers.weights import check_files

    check_files(CARD, weights, PARTS)
    clip = Clip.load(CARD, weights, device)
    return CosineScorer(CARD, clip, scale=float(clip.model.logit_scale.exp()))


SPEC: Final = ScorerSpec(CARD, build, parts=PARTS)
