"""Reward ``alignment``: how well card and caption fit, by a two-tower model.

Build: convolutions over the card, a recurrent network over words. Trained by
``recast_train.starter.towers`` on its own half of the captions.
"""

from typing import Final

from recast_eval.scorers.base import ScorerCard, ScorerSpec
from recast_eval.scorers.each import EachScorer
from recast_eval.scorers.towers import build_tower_scorer

CARD: Final = ScorerCard(
    name="alignment",
    version=1,
    family="conv-tower",
    what="card and caption lie close in an embedding trained to tell captions apart",
    unit="cosine",
    low=-1.0,
    high=1.0,
    text_limit=20,
    needs=("train/starter/scorers/alignment.safetensors, shipped with the starter",),
    source="contrastive two-tower, after CLIP, Radford et al. 2021 (arXiv 2103.00020)",
    licence="Apache-2.0",
    weights="train/starter/scorers/alignment.safetensors",
    preprocessing="area-averaged to 64x64",
)


def _build(*, device: str = "cpu", weights: str | None = None) -> EachScorer:
    return build_tower_scorer(CARD, "conv", device=device, weights=weights)


SPEC: Final = ScorerSpec(CARD, _build)
