"""Rebuild the masked starter from nothing: draw cards as tokens, pre-train, save. Resumes."""

import logging
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor
from torch.nn import Parameter

from recast_train.starter.masked_parts import (
    GRID,
    MASK,
    MaskedParts,
    build_masked_parts,
    draw_token_cards,
)
from recast_train.tensorfile import load_state, save_state

log = logging.getLogger(__name__)

CARDS: Final = 30_000
BATCH: Final = 32
LEARNING_RATE: Final = 2e-3
EMA_DECAY: Final = 0.99
DROP_CAPTION: Final = 0.1
SIZE_CONDITION: Final = (64.0, 64.0, 0.0, 0.0, 6.0)
"""aMUSEd's micro-conditioning: original size, crop, aesthetic score; constant here."""


def build_masked(
    work: Path, out: Path, *, steps: int = 9000, seed: int = 0, save_every: int = 100
) -> None:
    """Make the masked starter's folder in ``out``.

    Args:
        work: Folder for resumable state and drawn cards; may be deleted afterwards.
        out: Receives the finished parts (float32 safetensors), beside what else it holds.
        steps: Optimiser steps.
        seed: Of everything; the cards use ``seed + 1``.
        save_every: Steps between saves of the resumable state and of ``out``.
    """
    for done in pretrain_masked(work, out, steps=steps, seed=seed, save_every=save_every):
        log.info("masked starter: step %d of %d is in %s", done, steps, out)


def pretrain_masked(
    work: Path, out: Path, *, steps: int, save_every: int, seed: int = 0, cards: int = CARDS
) -> Iterator[int]:
    """As ``build_masked``, from ``cards`` drawn cards; yields the steps done at each save."""
    work.mkdir(parents=True, exist_ok=True)
    parts = build_masked_parts(seed)
    trainer = _Trainer(parts, _cards(work, parts, seed + 1, cards), seed + 2, steps)
    path = work / "masked.safetensors"
    if path.exists():
        trainer.load_state(load_state(path))
        log.info("masked pre-training goes on from step %d", trainer.step)
    if trainer.step >= steps:  # finished before; ``out`` may be another folder, or half written
        with trainer.averaged():
            _save(parts, out)
    for done in trainer.run(save_every):
        save_state(path, trainer.state())
        with trainer.averaged():
            _save(parts, out)
        log.info("masked pre-training step %d/%d: loss %.4f", done, steps, trainer.loss)
        yield done


def _save(parts: MaskedParts, out: Path) -> None:
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    parts.save(part)
    out.mkdir(parents=True, exist_ok=True)
    for item in part.iterdir():
        target = out / item.name
        if target.is_dir():
            shutil.rmtree(target)
        item.replace(target)
    part.rmdir()


def _cards(work: Path, parts: MaskedParts, seed: int, count: int) -> dict[str, Tensor]:
    path = work / "masked-cards.safetensors"
    if not path.exists():
        captions, grids = draw_token_cards(count, seed)
        cards = {"grids": torch.from_numpy(grids), "captions": caption_ids(parts, captions)}
        save_file(cards, path)
    found: dict[str, Tensor] = load_file(path)
    return found


def caption_ids(parts: MaskedParts, captions: list[str]) -> Tensor:
    """Token ids (N, L) of captions, padded."""
    tokenizer = parts.tokenizer
    ids: Tensor = tokenizer(
        captions,
        padding="max_length",
        max_length=tokenizer.model_max_length,
        truncation=True,
        return_tensors="pt",
    ).input_ids
    return ids


def mask_tokens(grids: Tensor, rng: Generator) -> tuple[Tensor, Tensor]:
    """Hide a random share cos(pi u / 2) of each row, u spread evenly over the batch.

    Args:
        grids: (B, N) token ids.
        rng: The only source of randomness.

    Returns:
        (B, N) ids with ``MASK`` in them, and (B, N) bool: what is hidden, at least one a row.
    """
    rows, tokens = grids.shape
    u = (torch.randperm(rows, generator=rng) + torch.rand(rows, generator=rng)) / rows
    count = (tokens * torch.cos(u * math.pi / 2)).round().clamp_min(1)
    place = torch.rand(rows, tokens, generator=rng).argsort(-1).argsort(-1)
    hidden = place < count[:, None]
    return grids.masked_fill(hidden, MASK), hidden


def masked_loss(parts: MaskedParts, grids: Tensor, ids: Tensor, rng: Generator) -> Tensor:
    """Mean cross-entropy of hidden tokens, as MaskGIT and aMUSEd are trained (no 1/t)."""
    seen, hidden = mask_tokens(grids, rng)
    text = parts.text_encoder(ids, output_hidden_states=True)
    logits = parts.transformer(
        input_ids=seen.view(-1, GRID, GRID),
        encoder_hidden_states=text.hidden_states[-2],
        pooled_text_emb=text.text_embeds,
        micro_conds=torch.tensor(SIZE_CONDITION).expand(len(seen), -1),
    )
    return torch.nn.functional.cross_entropy(logits.flatten(2).mT[hidden], grids[hidden])


@dataclass
class _Averaged:
    """Swap the averaged weights in, and the live ones back."""

    params: list[Parameter]
    ema: list[Tensor]

    def __enter__(self) -> None:
        self._live = [p.detach().clone() for p in self.params]
        _put(self.params, self.ema)

    def __exit__(self, *_: object) -> None:
        _put(self.params, self._live)


def _put(params: list[Parameter], values: list[Tensor]) -> None:
    with torch.no_grad():
        for p, v in zip(params, values, strict=True):
            p.copy_(v)


class _Trainer:
    """AdamW with a moving average; all its state can be saved."""

    def __init__(self, parts: MaskedParts, cards: dict[str, Tensor], seed: int, steps: int) -> None:
        self.parts, self.cards, self.steps = parts, cards, steps
        modules = (parts.transformer, parts.text_encoder)
        self.params = [p for m in modules for p in m.parameters()]
        self.ema = [p.detach().clone() for p in self.params]
        self.optimizer = torch.optim.AdamW(self.params, betas=(0.9, 0.98), weight_decay=0.01)
        self.rng = Generator().manual_seed(seed)
        self.empty = caption_ids(parts, [""])
        self.step, self.loss = 0, math.log(MASK)

    def run(self, save_every: int) -> Iterator[int]:
        """Train on; yields the steps done at each save."""
        while self.step < self.steps:
            self._one()
            if self.step % save_every == 0 or self.step == self.steps:
                yield self.step

    def _rate(self) -> float:
        """Warm up over 100 steps, hold, fall linearly over the last third."""
        left = (self.steps - self.step) / (self.steps / 3)
        return LEARNING_RATE * min((self.step + 1) / 100, 1.0, max(left, 0.01))

    def _one(self) -> None:
        rows = torch.randint(len(self.cards["grids"]), (BATCH,), generator=self.rng)
        ids = self.cards["captions"][rows].clone()
        ids[torch.rand(BATCH, generator=self.rng) < DROP_CAPTION] = self.empty
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate()
        loss = masked_loss(self.parts, self.cards["grids"][rows].long(), ids, self.rng)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        self.optimizer.step()
        decay = min(EMA_DECAY, (1 + self.step) / (10 + self.step))
        torch._foreach_lerp_(self.ema, [p.detach() for p in self.params], 1 - decay)
        self.step += 1
        self.loss += 0.02 * (float(loss.detach()) - self.loss)

    def averaged(self) -> _Averaged:
        return _Averaged(self.params, self.ema)

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "loss": self.loss,
            "params": [p.detach() for p in self.params],
            "ema": self.ema,
            "optimizer": self.optimizer.state_dict(),
            "rng": self.rng.get_state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        _put(self.params, state["params"])
        for mine, saved in zip(self.ema, state["ema"], strict=True):
            mine.copy_(saved)
        self.optimizer.load_state_dict(state["optimizer"])
        self.rng.set_state(state["rng"])
        self.step, self.loss = state["step"], state["loss"]
