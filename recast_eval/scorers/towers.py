"""Two small image-text models of unlike build: the reward's and the held-out judge's.

Both map a card and a caption to unit vectors; the cosine says how well they fit.
Their weights are trained by ``recast_train.starter.towers`` and ship with the starter.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn import functional

from recast_eval.content import content
from recast_eval.errors import DataError, MissingError
from recast_eval.records import Failed, Scored, file_sha256
from recast_eval.scorers.base import ScorerCard
from recast_eval.scorers.each import NOT_APPLICABLE, EachScorer, with_revision
from recast_eval.scorers.world import (
    BACKGROUNDS,
    COLORS,
    RELATIONS,
    SHAPES,
    SIZE,
    parse_caption,
)
from recast_eval.scorers.world.scene import NUMBERS

Kind = Literal["conv", "patch"]
WIDTH: Final = 96
"""Length of the vectors that are compared."""
_WORDS: Final = (
    *("a", "an", "and", "on", "card", "the", "word", "in", "left", "right", "of"),
    *COLORS,
    *BACKGROUNDS,
    *SHAPES,
    *(s + ("es" if s.endswith("s") else "s") for s in SHAPES),
    *(r for r in RELATIONS if " " not in r),
    *NUMBERS,
    *"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
)
_TOKEN: Final = {word: i + 2 for i, word in enumerate(_WORDS)}  # 0 is padding, 1 unknown
_WORD: Final = re.compile("[a-z]+|[A-Z]")
_MAX_WORDS, _MAX_LETTERS = 20, 72


def word_tokens(captions: Sequence[str]) -> Int[Tensor, "batch 20"]:
    """Words, and the letters of a quoted word one by one; unknown words are 1."""
    out = torch.zeros(len(captions), _MAX_WORDS, dtype=torch.int64)
    for i, caption in enumerate(captions):
        found = _WORD.findall(caption)[:_MAX_WORDS]
        out[i, : len(found)] = torch.tensor([_TOKEN.get(w, 1) for w in found], dtype=torch.int64)
    return out


def letter_tokens(captions: Sequence[str]) -> Int[Tensor, "batch 72"]:
    """ASCII codes, 0 after the end; anything else is 1."""
    out = torch.zeros(len(captions), _MAX_LETTERS, dtype=torch.int64)
    for i, caption in enumerate(captions):
        codes = [ord(c) if 31 < ord(c) < 128 else 1 for c in caption[:_MAX_LETTERS]]
        out[i, : len(codes)] = torch.tensor(codes, dtype=torch.int64)
    return out


class _ConvImage(nn.Module):
    """Strided convolutions; the last map is read whole, so that places count."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (3, 24, 48, 80, 112)
        self.steps = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, stride=2, padding=1), nn.GroupNorm(8, b), nn.GELU())
            for a, b in pairwise(sizes)
        )
        self.head = nn.Linear(sizes[-1] * (SIZE // 16) ** 2, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        for step in self.steps:
            x = step(x)
        return torch.as_tensor(self.head(x.flatten(1)))


class _WordText(nn.Module):
    """A recurrent network over words."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(_TOKEN) + 2, 64, padding_idx=0)
        self.read = nn.GRU(64, 112, batch_first=True)
        self.head = nn.Linear(112, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.read(self.embed(tokens))
        last = (tokens > 0).sum(1).clamp(min=1) - 1
        return torch.as_tensor(self.head(states[torch.arange(len(tokens)), last]))


def _block() -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(
        WIDTH, 4, 2 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )


class _PatchImage(nn.Module):
    """Attention over 8x8 patches; all of them are read, each in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, WIDTH, 8, stride=8)
        self.place = nn.Parameter(torch.randn(1, (SIZE // 8) ** 2, WIDTH) * 0.02)
        self.blocks = nn.ModuleList(_block() for _ in range(2))
        self.narrow = nn.Linear(WIDTH, 24)
        self.head = nn.Linear(24 * (SIZE // 8) ** 2, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patch(x).flatten(2).transpose(1, 2) + self.place
        for block in self.blocks:
            h = block(h)
        return torch.as_tensor(self.head(self.narrow(h).flatten(1)))


class _LetterText(nn.Module):
    """Convolutions over letters, then attention; no notion of a word is given."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(128, 64, padding_idx=0)
        self.near = nn.Conv1d(64, WIDTH, 6, stride=3, padding=2)
        self.place = nn.Parameter(torch.randn(1, _MAX_LETTERS // 3, WIDTH) * 0.02)
        self.block = _block()
        self.narrow = nn.Linear(WIDTH, 48)
        self.head = nn.Linear(48 * (_MAX_LETTERS // 3), WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.near(self.embed(tokens).transpose(1, 2)).transpose(1, 2)
        h = self.block(functional.gelu(h) + self.place)
        return torch.as_tensor(self.head(self.narrow(h).flatten(1)))


class TwoTower(nn.Module):
    """An image tower and a text tower with one temperature.

    Args:
        kind: ``conv`` (convolutions, words) or ``patch`` (attention, letters).
    """

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind: Kind = kind
        self.image: nn.Module = _ConvImage() if kind == "conv" else _PatchImage()
        self.text: nn.Module = _WordText() if kind == "conv" else _LetterText()
        self.log_scale = nn.Parameter(torch.tensor(2.5))

    def see(self, pixels: Float[Tensor, "batch 3 64 64"]) -> Float[Tensor, "batch width"]:
        """Unit vectors of cards in [-1, 1]."""
        return functional.normalize(self.image(pixels), dim=1)

    def read(self, captions: Sequence[str]) -> Float[Tensor, "batch width"]:
        """Unit vectors of captions."""
        tokens = word_tokens(captions) if self.kind == "conv" else letter_tokens(captions)
        device = self.log_scale.device
        return functional.normalize(self.text(tokens.to(device)), dim=1)


def to_input(images: Sequence[np.ndarray]) -> Float[Tensor, "batch 3 64 64"]:
    """uint8 RGB arrays of any size to one float batch in [-1, 1], area-averaged to 64x64."""
    rows = []
    for image in images:
        x = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float()
        if x.shape[2:] != (SIZE, SIZE):
            x = functional.interpolate(x, size=(SIZE, SIZE), mode="area")
        rows.append(x)
    return torch.cat(rows) / 127.5 - 1


def load_tower(path: Path, kind: Kind) -> TwoTower:
    """Read weights (safetensors, any float type) into a model ready to score.

    Raises:
        MissingError: No such file; says how it is made.
        DataError: The file is not such a model.
    """
    if not path.is_file():
        raise MissingError(f"no weights at {path}: make them with `recast-train starter towers`")
    model = TwoTower(kind)
    try:
        with safe_open(str(path), framework="pt") as file:
            state = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
        model.load_state_dict(state)
    except (SafetensorError, RuntimeError, OSError) as error:
        raise DataError(f"not weights of a {kind} tower: {error}", path=path) from error
    return model.eval().requires_grad_(False)


def build_tower_scorer(
    card: ScorerCard, kind: Kind, *, device: str, weights: str | None
) -> EachScorer:
    """Make a scorer of a tower; one card at a time, so that batches cannot differ.

    Args:
        card: Of the scorer; its ``weights`` names a file below ``train/starter``.
        kind: Build of the tower.
        device: Where it runs.
        weights: Another file.

    Raises:
        MissingError: The weights are not here.
        DataError: They are no such tower.
    """
    name = card.weights.removeprefix("train/starter/")
    path = Path(weights) if weights else content("train/starter") / name
    model = load_tower(path, kind).to(device)
    limit = card.text_limit or 0

    def score(pixels: np.ndarray, prompt: str) -> Scored | Failed:
        if parse_caption(prompt) is None:
            detail = "the prompt is no caption of the card language"
            return Failed(reason=NOT_APPLICABLE, detail=detail)
        with torch.inference_mode():
            seen = model.see(to_input([pixels]).to(device))
            value = float((seen * model.read([prompt])).sum().clamp(-1, 1))
        tokens = word_count(prompt) if kind == "conv" else len(prompt)
        return Scored(value=value, truncated=tokens > limit)

    return EachScorer(with_revision(card, file_sha256(path)), score)


def word_count(caption: str) -> int:
    """Tokens of a caption as the word tower counts them."""
    return len(_WORD.findall(caption))
