"""The masked starter's parts: aMUSEd's classes at small size, and cards as palette tokens."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from diffusers import AmusedScheduler, UVit2DModel
from jaxtyping import Int, UInt8
from transformers import CLIPTextModelWithProjection, CLIPTokenizer

from recast_eval.scorers.world import BACKGROUNDS, COLORS, SIZE, draw_card, write_caption
from recast_eval.scorers.world.scene import Family
from recast_train.starter.pipeline import build_text_encoder, build_tokenizer
from recast_train.starter.scenes import FAMILIES, sample_scene

GRID: Final = 16
"""Tokens a side; each is a square of 4 x 4 pixels in one palette colour."""
PALETTE: Final = (*COLORS.values(), *BACKGROUNDS.values())
"""Token id to sRGB."""
MASK: Final = len(PALETTE)
"""Id of a masked token."""
MASKED_FAMILIES: Final[dict[Family, float]] = {
    family: share / (1 - FAMILIES["ocr"]) for family, share in FAMILIES.items() if family != "ocr"
}
"""Caption families; words are left out, since letters do not fit 16 x 16 squares."""
TRANSFORMER: Final[dict[str, Any]] = {
    "hidden_size": 64,
    "in_channels": 48,
    "block_out_channels": 48,
    # UVit2DModel has no position embedding: each 3x3 block tells the borders apart one cell
    # further in, and two of them reach half of the 8 x 8 cells that downsampling leaves
    "num_res_blocks": 2,
    "downsample": True,
    "upsample": True,
    "block_num_heads": 2,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 160,
    "cond_embed_dim": 64,
    "encoder_hidden_size": 64,
    "micro_cond_encode_dim": 8,
    "micro_cond_embed_dim": 40,
    "vocab_size": MASK + 1,
    "codebook_size": MASK,
    "sample_size": GRID,
}


@dataclass(frozen=True, slots=True)
class MaskedParts:
    """What a masked image model consists of, in aMUSEd's folder layout."""

    transformer: UVit2DModel
    text_encoder: CLIPTextModelWithProjection
    tokenizer: CLIPTokenizer
    scheduler: AmusedScheduler

    def save(self, out: Path) -> None:
        """Write the parts (safetensors) and the palette that turns tokens into colours."""
        self.transformer.save_pretrained(out / "transformer")
        self.text_encoder.save_pretrained(out / "text_encoder")
        self.tokenizer.save_pretrained(out / "tokenizer")
        self.scheduler.save_pretrained(out / "scheduler")
        rows = ",\n  ".join(str(list(rgb)) for rgb in PALETTE)
        text = f'{{"cell": {SIZE // GRID}, "palette": [\n  {rows}\n]}}\n'
        (out / "palette.json").write_text(text, encoding="utf-8")


def build_masked_parts(seed: int) -> MaskedParts:
    """Untrained parts."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tokenizer = build_tokenizer()
        transformer = UVit2DModel(**TRANSFORMER)
        start_as_copier(transformer)
        text_encoder = build_text_encoder(tokenizer, layers=3)
        start_as_reader(text_encoder)
        return MaskedParts(
            transformer=transformer,
            text_encoder=text_encoder,
            tokenizer=tokenizer,
            scheduler=AmusedScheduler(mask_token_id=MASK),
        )


@torch.no_grad()
def start_as_copier(transformer: UVit2DModel) -> None:
    """Set the weights so that the untrained model copies what it sees and guesses the rest.

    Every token id has a channel, downsampling stacks the four squares of a cell in channels
    of their own, and upsampling takes them apart again; residual branches begin at 0. From
    PyTorch's default initialisation the model had not found within 700 steps that squares
    near each other share a colour.
    """
    width = TRANSFORMER["block_out_channels"] // 4
    straight = {
        "embed.embeddings": torch.eye(MASK + 1, TRANSFORMER["in_channels"]),
        "embed.conv": torch.eye(4 * width)[:, :, None, None],
        "project_to_hidden": torch.eye(TRANSFORMER["hidden_size"], 4 * width),
        "project_from_hidden": torch.eye(4 * width, TRANSFORMER["hidden_size"]),
        "mlm_layer.conv1": torch.eye(4 * width)[:, :, None, None],
        "mlm_layer.conv2": torch.eye(MASK, TRANSFORMER["in_channels"])[:, :, None, None],
    }
    for name, weight in straight.items():
        transformer.get_submodule(name).weight.copy_(weight)
    down = transformer.down_block.downsample.conv.weight.zero_()
    up = transformer.up_block.upsample.conv.weight.zero_()
    for place in range(4):
        row, column = divmod(place, 2)
        for token in range(MASK + 1):
            down[place * width + token, token, row, column] = 0.5
            up[place * width + token, token, row, column] = 1.0
    for name, module in transformer.named_modules():
        if name.endswith(("to_out.0", "ff.net.2", "channelwise_linear_2")):
            module.weight.zero_()


@torch.no_grad()
def start_as_reader(text_encoder: CLIPTextModelWithProjection) -> None:
    """Let the pooled embedding say from the start which words a caption has.

    The first layer's attention passes its mean input on. By default the embedding hardly
    depends on the caption, and the model learnt to do without.
    """
    attention = text_encoder.get_submodule("text_model.encoder.layers.0.self_attn")
    size = attention.v_proj.weight.shape[0]
    for projection in (attention.v_proj, attention.out_proj, text_encoder.text_projection):
        projection.weight.copy_(torch.eye(size))


def to_tokens(pixels: UInt8[np.ndarray, "height width 3"]) -> Int[np.ndarray, "grid grid"]:
    """A card as palette tokens: the commonest of its own flat colours in each square.

    Only colours that the card has exactly are candidates. Smoothed edges between red and
    white would otherwise become orange or pink squares.
    """
    gap = pixels[:, :, None].astype(np.int32) - np.array(PALETTE, np.int32)
    distance = (gap**2).sum(-1)
    exact = (distance <= 12).sum((0, 1))
    distance[:, :, exact < 8] = np.iinfo(np.int32).max
    nearest = distance.argmin(-1)
    cell = SIZE // GRID
    blocks = nearest.reshape(GRID, cell, GRID, cell).transpose(0, 2, 1, 3)
    votes = (blocks.reshape(GRID, GRID, -1)[..., None] == np.arange(MASK)).sum(2)
    tokens: np.ndarray = votes.argmax(-1)
    return tokens


def draw_token_cards(count: int, seed: int) -> tuple[list[str], Int[np.ndarray, "count tokens"]]:
    """Captions and token grids (count, GRID * GRID) uint8 of freshly drawn cards."""
    rng = np.random.default_rng(seed)
    names = list(MASKED_FAMILIES)
    captions, grids = [], np.empty((count, GRID * GRID), np.uint8)
    for i in range(count):
        family = names[rng.choice(len(names), p=list(MASKED_FAMILIES.values()))]
        scene = sample_scene(rng, family)
        captions.append(write_caption(scene))
        grids[i] = to_tokens(np.asarray(draw_card(scene, rng))).ravel()
    return captions, grids
