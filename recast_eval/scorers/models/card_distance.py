"""Held-out judge ``card-distance``: how far a picture is from real cards of its caption.

Features of a random, never trained convolutional network; distance to the nearest of a few
cards drawn for the same caption. The per-image relative of KID (Binkowski et al. 2018,
arXiv 1801.01401): tricks that please a reward lead away from the cards.
"""

from functools import lru_cache
from hashlib import sha256
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import ScorerCard, ScorerSpec
from recast_eval.scorers.each import NOT_APPLICABLE, EachScorer
from recast_eval.scorers.towers import to_input
from recast_eval.scorers.world import draw_card, parse_caption

CARD: Final = ScorerCard(
    name="card-distance",
    version=1,
    family="random-features",
    what="the picture lies near real cards of its caption in a feature space nothing trained on",
    unit="minus the mean feature distance to the 3 nearest of 24 real cards, "
    "1 being what a real card has",
    raw_direction="lower",
    high=0.0,
    source="rule of this project, after KID, Binkowski et al. 2018 (arXiv 1801.01401)",
    licence="Apache-2.0",
    preprocessing="area-averaged to 64x64",
)
_REAL, _NEAREST = 24, 3
_UNIT: Final = 0.135
"""Mean distance of a real card to the nearest ones, over the captions of both test sets."""


@lru_cache(maxsize=1)
def _kernels() -> tuple[Tensor, ...]:
    rng = torch.Generator().manual_seed(97)
    shapes = ((32, 3, 5, 5), (64, 32, 3, 3), (96, 64, 3, 3))
    made = [torch.randn(s, generator=rng) * (2 / np.prod(s[1:])) ** 0.5 for s in shapes]
    # No kernel of the first layer answers to an even field: edges and blobs, not brightness.
    half = made[0][16:]
    made[0][16:] = half - half.mean(dim=(1, 2, 3), keepdim=True)
    return tuple(made)


def features(images: Tensor) -> Tensor:
    """(N, 3, 64, 64) in [-1, 1] to (N, F): each layer's responses, averaged over a 4x4 grid."""
    x, parts = images, []
    for kernel in _kernels():
        pad = kernel.shape[-1] // 2
        x = functional.relu(functional.conv2d(x, kernel, stride=2, padding=pad))
        pooled = functional.adaptive_avg_pool2d(x, 4).flatten(1)
        parts.append(pooled / pooled.shape[1] ** 0.5)
    return torch.cat(parts, dim=1)


@lru_cache(maxsize=4096)
def _real(caption: str) -> Tensor | None:
    scene = parse_caption(caption)
    if scene is None:
        return None
    rng = np.random.default_rng(int.from_bytes(sha256(caption.encode()).digest()[:8]))
    cards = [np.asarray(draw_card(scene, rng)) for _ in range(_REAL)]
    return features(to_input(cards))


def _score(pixels: np.ndarray, prompt: str) -> Scored | Failed:
    with torch.inference_mode():
        real = _real(prompt)
        if real is None:
            detail = "the prompt is no caption of the card language"
            return Failed(reason=NOT_APPLICABLE, detail=detail)
        distance = torch.linalg.vector_norm(real - features(to_input([pixels])), dim=1)
        nearest = distance.sort().values[:_NEAREST]
        return Scored(value=-float(nearest.mean()) / _UNIT)


def _build(*, device: str = "cpu", weights: str | None = None) -> EachScorer:
    del device, weights  # small and never trained
    return EachScorer(CARD, _score)


SPEC: Final = ScorerSpec(CARD, _build)
