"""LAION aesthetic v2: an MLP on CLIP ViT-L/14 (Schuhmann et al. 2022, arXiv:2210.08402)."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import Scorer, ScorerCard, ScorerSpec
from recast_eval.scorers.needed import CLIP_TOKENIZER, converted, pretrained

CARD: Final = ScorerCard(
    name="aesthetic",
    version=1,
    family="laion-aesthetic",
    what="people would rate the picture as beautiful, whatever the prompt",
    unit="rating, about 1-10",
    needs=("weights openai/clip-vit-large-patch14 and sac+logos+ava1-l14-linearMSE, converted",),
    source="https://github.com/christophschuhmann/improved-aesthetic-predictor",
    licence="Apache-2.0",
    weights="openai/clip-vit-large-patch14",
    preprocessing="bicubic to 224, centre crop, unit CLIP features",
)
FILE: Final = "aesthetic.safetensors"
"""The MLP's tensors, ``layers.N.weight`` and ``.bias``; N as published (dropouts count)."""


class AestheticScorer:
    """Reads no text."""

    card = CARD

    def __init__(self, clip: Any, head: Any) -> None:
        self._clip, self._head = clip, head

    def __call__(
        self, images: Sequence[np.ndarray], prompts: Sequence[str]
    ) -> list[Scored | Failed]:
        """See ``Scorer``."""
        import torch

        from recast_eval.scorers.each import check_batch

        check_batch(images, prompts)
        if not images:
            return []
        with torch.no_grad():
            values = self._head(self._clip.images(images)).squeeze(-1).tolist()
        return [Scored(value=v) for v in values]


PUBLISHED: Final = "sac+logos+ava1-l14-linearMSE.pth"
PARTS: Final = (
    pretrained(CARD.weights, tokenizer=CLIP_TOKENIZER),
    converted(
        FILE,
        f"curl -Lo {PUBLISHED} {CARD.source}/raw/main/{PUBLISHED.replace('+', '%2B')}",
        PUBLISHED,
        ("layers.0.weight", "layers.7.bias"),
    ),
)


def build(*, device: str = "cpu", weights: str | None = None) -> Scorer:
    """See ``ScorerFactory``."""
    from recast_eval.scorers.clip import Clip
    from recast_eval.scorers.heads import mlp_head
    from recast_eval.scorers.weights import check_files, read_tensors

    check_files(CARD, weights, PARTS)
    clip = Clip.load(CARD, weights, device)
    return AestheticScorer(clip, mlp_head(read_tensors(CARD, weights, FILE), "layers").to(device))


SPEC: Final = ScorerSpec(CARD, build, parts=PARTS)
