"""Train the image-text towers that score cards: one for the reward, one for the held-out judge.

Contrastive learning (Radford et al. 2021, arXiv 2103.00020) on cards drawn as training goes.
Only captions that contradict a card count against it, and every caption meets a near miss
(one word changed), the blank card, a tiled card, noise and itself in writing.
"""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import torch
from PIL import Image, ImageDraw
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from recast_eval.scorers.towers import Kind, TwoTower, load_tower, to_input
from recast_eval.scorers.world import (
    BACKGROUNDS,
    COLORS,
    RELATIONS,
    SHAPES,
    SIZE,
    Scene,
    Word,
    draw_card,
    parse_caption,
    write_caption,
)
from recast_eval.scorers.world.prompt_sets import STARTER_SETS
from recast_train.starter.scenes import sample_scene
from recast_train.tensorfile import load_state, save_state

log = logging.getLogger(__name__)

TOWERS: Final[dict[str, tuple[Kind, int, int, int]]] = {
    "alignment": ("conv", 0, 11, 900),
    "alignment-heldout": ("patch", 1, 23, 1100),
}
"""Scorer -> (build, half of the captions, seed, batches that the shipped weights were given)."""
BATCH: Final = 64
_BAD: Final = 16


def half_of(caption: str) -> int:
    """Which half of all captions one belongs to, by its hash: 0 or 1."""
    return hashlib.sha256(caption.encode()).digest()[0] & 1


def contradict(first: Scene, second: Scene) -> bool:
    """Whether no card can show both scenes. What either leaves open is no contradiction."""
    if first.background and second.background and first.background != second.background:
        return True
    if first.word or second.word:
        a, b = first.word, second.word
        return (
            not a or not b or a.text != b.text or bool(a.color and b.color and a.color != b.color)
        )
    counts = [sorted((i.shape, i.count) for i in s.items) for s in (first, second)]
    if counts[0] != counts[1]:
        return True
    tints = {i.shape: i.color for i in second.items}
    if any(i.color and tints[i.shape] and i.color != tints[i.shape] for i in first.items):
        return True
    if not first.relation or not second.relation:
        return False
    turned = first.items[0].shape != second.items[0].shape
    return (_opposite(first.relation) if turned else first.relation) != second.relation


def _opposite(relation: str) -> str:
    pairs = {"above": "below", "left of": "right of"}
    return (pairs | {b: a for a, b in pairs.items()})[relation]


def _other(rng: np.random.Generator, names: Sequence[str], not_this: str | None) -> str:
    kept = [n for n in names if n != not_this]
    return kept[int(rng.integers(len(kept)))]


def near_miss(scene: Scene, rng: np.random.Generator) -> Scene:
    """Change one thing, so that the scene contradicts the old one."""
    if scene.background and rng.random() < 0.2:
        return replace(scene, background=_other(rng, list(BACKGROUNDS), scene.background))
    if scene.word:
        text, color = scene.word.text, scene.word.color
        if color and rng.random() < 0.3:
            return replace(scene, word=Word(text, _other(rng, list(COLORS), color)))
        i = int(rng.integers(len(text)))
        letter = _other(rng, list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), text[i])
        return replace(scene, word=Word(text[:i] + letter + text[i + 1 :], color))
    if scene.relation and rng.random() < 0.4:
        return replace(scene, relation=_other(rng, RELATIONS, scene.relation))
    if len(scene.items) == 1 and scene.items[0].count > 1 and rng.random() < 0.5:
        item = scene.items[0]
        count = int(_other(rng, ["2", "3", "4"], str(item.count)))
        return replace(scene, items=(replace(item, count=count),))
    i = int(rng.integers(len(scene.items)))
    item = scene.items[i]
    if item.color and rng.random() < 0.5:
        new = replace(item, color=_other(rng, list(COLORS), item.color))
    else:
        taken = {x.shape for x in scene.items}
        new = replace(item, shape=_other(rng, [s for s in SHAPES if s not in taken], None))
    return replace(scene, items=tuple(new if k == i else x for k, x in enumerate(scene.items)))


def bad_card(card: np.ndarray, caption: str, rng: np.random.Generator) -> np.ndarray:
    """A card that shows nothing of its caption properly: blank, tiled, noise or writing."""
    kind = rng.integers(4)
    if kind == 0:
        return np.broadcast_to(card[0, 0], card.shape).copy()
    if kind == 1:
        n = int(rng.choice([2, 4]))
        small = Image.fromarray(card).resize((SIZE // n, SIZE // n), Image.Resampling.BOX)
        return np.tile(np.asarray(small), (n, n, 1))
    if kind == 2:
        return rng.integers(0, 256, card.shape, dtype=np.uint8)
    image = Image.new("RGB", (SIZE, SIZE), tuple(int(v) for v in card[0, 0]))
    fill = tuple(int(v) for v in rng.integers(0, 256, 3))
    text = caption.replace(" ", "\n" if rng.random() < 0.7 else " ")
    ImageDraw.Draw(image).multiline_text((2, 2), text, fill=fill)
    return np.asarray(image)


def _roughen(x: Tensor, rng: torch.Generator) -> Tensor:
    """Blur and grain of random strength: drawn pictures are never as clean as cards."""
    amount = torch.rand(len(x), 1, 1, 1, generator=rng)
    soft = functional.avg_pool2d(functional.pad(x, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    grain = torch.randn(x.shape, generator=rng) * 0.12 * torch.rand(amount.shape, generator=rng)
    return x + 0.8 * amount.square() * (soft - x) + grain


@lru_cache(maxsize=1)
def _held_out() -> frozenset[str]:
    """Captions of the test splits, on which the towers are measured."""
    return frozenset(r["prompt"] for make in STARTER_SETS.values() for r in make()["test"])


def _scenes(count: int, half: int, rng: np.random.Generator) -> list[Scene]:
    found: list[Scene] = []
    while len(found) < count:
        scene = sample_scene(rng)
        caption = write_caption(scene)
        if half_of(caption) == half and caption not in _held_out():
            found.append(scene)
    return found


def tower_loss(model: TwoTower, half: int, seed: Sequence[int]) -> Tensor:
    """Symmetric contrastive loss of one batch; the batch is a function of ``seed`` alone."""
    rng = np.random.default_rng(list(seed))
    scenes = _scenes(BATCH, half, rng)
    cards = [np.asarray(draw_card(s, rng)) for s in scenes]
    captions = [write_caption(s) for s in scenes]
    misses = [near_miss(s, rng) for s in scenes]
    bad = [bad_card(cards[i], captions[i], rng) for i in range(_BAD)]
    noise = torch.Generator().manual_seed(int(rng.integers(2**62)))
    seen = model.see(_roughen(to_input(cards + bad), noise))
    read = model.read(captions + [write_caption(s) for s in misses])
    logits = model.log_scale.exp().clamp(max=60) * seen @ read.T
    wrong = torch.tensor([[contradict(a, b) for b in scenes + misses] for a in scenes])
    counted = wrong | torch.eye(BATCH, 2 * BATCH, dtype=torch.bool)
    target = torch.arange(BATCH)
    by_image = logits[:BATCH].masked_fill(~counted, -torch.inf)
    by_text = logits[:, :BATCH].T.masked_fill(
        ~torch.cat([counted[:, :BATCH].T, torch.ones(BATCH, _BAD, dtype=torch.bool)], 1), -torch.inf
    )
    return functional.cross_entropy(by_image, target) + functional.cross_entropy(by_text, target)


def train_tower(work: Path, name: str, *, steps: int, save_every: int = 100) -> TwoTower:
    """Train the tower of a scorer, or resume it from ``work``.

    Args:
        work: Where its state is kept, one file.
        name: Key of ``TOWERS``.
        steps: Batches in all.
        save_every: Batches between two saved states.
    """
    kind, half, seed, _ = TOWERS[name]
    torch.manual_seed(seed)
    model = TwoTower(kind).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=2e-3, total_steps=steps, pct_start=0.08
    )
    start, state = 0, work / f"{name}.safetensors"
    if state.exists():
        saved = load_state(state)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["schedule"])
        start = saved["step"]
    for step in range(start, steps):
        loss = tower_loss(model, half, (seed, step))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % save_every == 0 or step + 1 == steps:
            log.info("%s step %d/%d: loss %.3f", name, step + 1, steps, loss.item())
            save_state(
                state,
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "schedule": schedule.state_dict(),
                    "step": step + 1,
                },
            )
    return model.eval().requires_grad_(False)


@torch.no_grad()
def measure_tower(model: TwoTower, scenes: Sequence[Scene], *, seed: int) -> dict[str, float]:
    """How well a tower tells cards apart, on scenes it did not train on.

    Returns:
        ``recall_at_1``: share of cards whose caption is the nearest of all that contradict it;
        ``auc_near_miss``: share of cards nearer to their caption than to one with a word changed;
        ``auc_bad_card``: share of captions nearer to their card than to a bad one.
    """
    rng = np.random.default_rng(seed)
    cards = [np.asarray(draw_card(s, rng)) for s in scenes]
    captions = [write_caption(s) for s in scenes]
    misses = [write_caption(near_miss(s, rng)) for s in scenes]
    bad = [bad_card(c, t, rng) for c, t in zip(cards, captions, strict=True)]
    seen, read = model.see(to_input(cards)), model.read(captions)
    own = (seen * read).sum(1)
    wrong = torch.tensor([[contradict(a, b) for b in scenes] for a in scenes])
    rivals = (seen @ read.T).masked_fill(~wrong, -torch.inf).max(1).values
    return {
        "recall_at_1": float((own > rivals).float().mean()),
        "auc_near_miss": float((own > (seen * model.read(misses)).sum(1)).float().mean()),
        "auc_bad_card": float((own > (model.see(to_input(bad)) * read).sum(1)).float().mean()),
    }


def save_tower(model: TwoTower, path: Path, facts: dict[str, str]) -> None:
    """Write weights in half precision, with where they come from, as safetensors."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    save_file({k: v.half().contiguous() for k, v in model.state_dict().items()}, part, facts)
    part.replace(path)


def build_towers(work: Path, out: Path, *, steps: int | None = None) -> dict[str, dict[str, float]]:
    """Train, measure and save every tower of ``TOWERS``; each resumes from ``work``.

    Args:
        work: Resumable state.
        out: Folder that gets ``SCORER.safetensors``; what was measured is in its metadata.
        steps: Batches of each; None is what the shipped weights were given.

    Returns:
        Scorer -> what ``measure_tower`` found on the captions of the test splits.
    """
    work.mkdir(parents=True, exist_ok=True)
    rows = sorted(_held_out())
    scenes = [s for s in map(parse_caption, rows) if s]
    found = {}
    for name, (kind, half, seed, usual) in TOWERS.items():
        path, count = out / f"{name}.safetensors", steps or usual
        save_tower(train_tower(work, name, steps=count), path, {})
        model = load_tower(path, kind)  # as it will be used: in half precision on disk
        found[name] = measure_tower(model, scenes, seed=0)
        facts = {"kind": kind, "half": str(half), "seed": str(seed), "steps": str(count)}
        facts |= {k: f"{v:.4f}" for k, v in found[name].items()}
        save_tower(model, path, facts)
        log.info("%s: %s", name, found[name])
    return found
