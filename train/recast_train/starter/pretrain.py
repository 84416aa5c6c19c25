"""Pre-train the starter's transformer and text encoders by flow matching on drawn cards."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from diffusers import StableDiffusion3Pipeline
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor
from torch.nn import Module, Parameter

from recast_train.tensorfile import load_state, save_state

log = logging.getLogger(__name__)

BATCHES: Final = ((1400, 96), (0, 48))
"""(steps from the start, cards a step); the last pair holds for the rest. Smaller batches buy more
steps in the hour once the coarse structure is learned."""
LEARNING_RATE: Final = 1e-3
EMA_DECAY: Final = 0.998
DROP_CAPTION: Final = 0.1
SHORT, LONG, LONG_SHARE = 4, 256, 0.03
"""Empty third-encoder tokens appended while training: a few for speed, and now and then as many
as ``StableDiffusion3Pipeline`` appends by default, so that its default call draws as well."""


class Cards(NamedTuple):
    """Pre-training data: normalised latents (N, 4, 16, 16) bf16 and token ids (N, TOKENS)."""

    latents: Tensor
    tokens: Tensor


def save_cards(path: Path, cards: Cards) -> None:
    """Write the data set as safetensors."""
    save_file({k: v.contiguous() for k, v in cards._asdict().items()}, path)


def load_cards(path: Path) -> Cards:
    """Read the data set."""
    found = load_file(path)
    return Cards(found["latents"], found["tokens"])


def tokenize(pipeline: StableDiffusion3Pipeline, captions: list[str]) -> Tensor:
    """Token ids (N, TOKENS), as the pipeline itself makes them."""
    tokenizer = pipeline.tokenizer
    ids: Tensor = tokenizer(
        captions,
        padding="max_length",
        max_length=tokenizer.model_max_length,
        truncation=True,
        return_tensors="pt",
    ).input_ids
    return ids.to(torch.int32)


def embed(pipeline: StableDiffusion3Pipeline, ids: Tensor, extra: int) -> tuple[Tensor, Tensor]:
    """Prompt embeddings (B, TOKENS + extra, dim) and pooled ones, as SD3 puts them together."""
    one = pipeline.text_encoder(ids, output_hidden_states=True)
    two = pipeline.text_encoder_2(ids, output_hidden_states=True)
    tokens = torch.cat([one.hidden_states[-2], two.hidden_states[-2]], dim=-1)
    zeros = tokens.new_zeros(len(ids), extra, tokens.shape[-1])
    return torch.cat([tokens, zeros], 1), torch.cat([one.text_embeds, two.text_embeds], -1)


def flow_loss(
    pipeline: StableDiffusion3Pipeline, x_0: Tensor, ids: Tensor, extra: int, rng: Generator
) -> Tensor:
    """Mean squared velocity error at noise levels spread evenly over a logit-normal (SD3)."""
    u = (torch.randperm(len(x_0), generator=rng) + torch.rand(len(x_0), generator=rng)) / len(x_0)
    sigma = torch.special.ndtri(u.clamp(1e-4, 1 - 1e-4)).add(0.4).sigmoid()
    noise = torch.randn(x_0.shape, generator=rng)
    s = sigma.view(-1, 1, 1, 1)
    tokens, pooled = embed(pipeline, ids, extra)
    velocity = pipeline.transformer(
        hidden_states=(1 - s) * x_0 + s * noise,
        timestep=sigma * 1000,
        encoder_hidden_states=tokens,
        pooled_projections=pooled,
        return_dict=False,
    )[0]
    error: Tensor = (velocity.float() - (noise - x_0)).square().mean()
    return error


def _modules(pipeline: StableDiffusion3Pipeline) -> list[Module]:
    return [pipeline.transformer, pipeline.text_encoder, pipeline.text_encoder_2]


def _parameters(pipeline: StableDiffusion3Pipeline) -> list[Parameter]:
    return [p for m in _modules(pipeline) for p in m.parameters()]


def _rate(step: int, steps: int) -> float:
    """Warm up over 100 steps, hold, fall linearly over the last quarter."""
    return min((step + 1) / 100, 1.0, max((steps - step) / (0.25 * steps), 0.01))


def _batch(cards: Cards, empty: Tensor, step: int, rng: Generator) -> tuple[Tensor, Tensor, int]:
    long = bool(torch.rand((), generator=rng) < LONG_SHARE)
    size = next((n for until, n in BATCHES if step < until), BATCHES[-1][1])
    rows = torch.randint(len(cards.latents), (size // 3 if long else size,), generator=rng)
    ids = cards.tokens[rows].clone()
    ids[torch.rand(len(ids), generator=rng) < DROP_CAPTION] = empty
    return cards.latents[rows].float(), ids, LONG if long else SHORT


def pretrain(
    pipeline: StableDiffusion3Pipeline,
    cards: Cards,
    work: Path,
    *,
    steps: int,
    seed: int,
    save_every: int = 200,
) -> Iterator[int]:
    """Train in place; yields at each save with the averaged weights loaded; resumes.

    Args:
        pipeline: From ``build_pipeline`` (or any: its weights are replaced on resume).
        cards: Latents and tokens.
        work: Folder of the resumable state; the model itself is the caller's to save.
        steps: Optimiser steps in all.
        seed: Of batches, noise levels and noise.
        save_every: Steps between saves.

    Yields:
        Steps done, while ``pipeline`` holds the moving average of the weights.
    """
    params = _parameters(pipeline)
    optimizer = torch.optim.AdamW(params, lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    rng = torch.Generator().manual_seed(seed)
    ema = [p.detach().clone() for p in params]
    path, start = work / "pretrain.safetensors", 0
    if path.exists():
        start = _resume(load_state(path), params, ema, optimizer, rng)
        log.info("pre-training goes on from step %d", start)
    if start >= steps:  # finished before; whether it was written is the caller's to know
        _load(params, ema)
        yield start
    empty = tokenize(pipeline, [""])
    smooth = 1.0
    for step in range(start, steps):
        x_0, ids, extra = _batch(cards, empty, step, rng)
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * _rate(step, steps)
        loss = flow_loss(pipeline, x_0, ids, extra, rng)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        decay = min(EMA_DECAY, (1 + step) / (10 + step))
        torch._foreach_lerp_(ema, [p.detach() for p in params], 1 - decay)
        smooth += 0.02 * (loss.item() - smooth)
        if (step + 1) % save_every == 0 or step + 1 == steps:
            log.info("pre-training step %d/%d: loss %.4f", step + 1, steps, smooth)
            save_state(path, _state(step + 1, params, ema, optimizer, rng))
            live = [p.detach().clone() for p in params]
            _load(params, ema)
            yield step + 1
            _load(params, live)


def _load(params: list[Parameter], values: list[Tensor]) -> None:
    with torch.no_grad():
        for p, v in zip(params, values, strict=True):
            p.copy_(v)


def _state(
    step: int,
    params: list[Parameter],
    ema: list[Tensor],
    optimizer: torch.optim.Optimizer,
    rng: Generator,
) -> dict[str, Any]:
    return {
        "step": step,
        "params": [p.detach() for p in params],
        "ema": ema,
        "optimizer": optimizer.state_dict(),
        "rng": rng.get_state(),
    }


def _resume(
    state: dict[str, Any],
    params: list[Parameter],
    ema: list[Tensor],
    optimizer: torch.optim.Optimizer,
    rng: Generator,
) -> int:
    _load(params, state["params"])
    for mine, saved in zip(ema, state["ema"], strict=True):
        mine.copy_(saved)
    optimizer.load_state_dict(state["optimizer"])
    rng.set_state(state["rng"])
    step: int = state["step"]
    return step
