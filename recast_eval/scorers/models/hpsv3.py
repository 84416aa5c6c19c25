"""HPSv3 in a process of its own, since its package pins old versions (arXiv:2508.03789)."""

import os
from typing import Final

from recast_eval.errors import MissingError
from recast_eval.scorers.base import Scorer, ScorerCard, ScorerSpec

VARIABLE: Final = "RECAST_HPSV3_URL"
CARD: Final = ScorerCard(
    name="hpsv3",
    version=1,
    family="hpsv3",
    what="people would prefer this picture for the prompt",
    unit="reward mu, unbounded, about 0-15 (sigma in `detail` where the server sends it)",
    needs=(f"a scorer server that speaks recast_eval.scorers.wire, its URL in {VARIABLE}",),
    source="https://github.com/MizzenAI/HPSv3",
    licence="MIT code; weights MizzenAI/HPSv3",
    weights="MizzenAI/HPSv3",
    preprocessing="the server's: keyword arguments, since their order differs between releases",
)


def build(*, device: str = "cpu", weights: str | None = None) -> Scorer:
    """See ``ScorerFactory``; ``weights`` is the server's URL, ``device`` is the server's affair."""
    from recast_eval.scorers.remote import RemoteScorer

    url = weights or os.environ.get(VARIABLE)
    if not url:
        raise MissingError(f"scorer hpsv3: set {VARIABLE} to its server (docs/scorers.md)")
    return RemoteScorer(url, name=CARD.name)


SPEC: Final = ScorerSpec(CARD, build, served=True)
