"""How much memory and time a run will take, said before it starts. An estimate, not a measurement.

What is exact: parameters, optimiser states, gradients, the number of forwards. What was measured
on small models of the same classes: bytes that autograd keeps (the tests measure them again). What
is assumed: arithmetic rate, and a tenth of the card for the allocator and CUDA.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

from safetensors import safe_open

from recast_train.config import Plan, read_yaml
from recast_train.policies.sd3.config import Sd3Config
from recast_train.policies.sd3.shapes import (
    CLIP_TOKENS,
    SD35_MEDIUM,
    Shape,
    measure_shape,
    meta_transformer,
)

CARDS: Final = (24, 48, 80, 141)
"""GB of common accelerators."""
_FREE: Final = 0.9
_SAVED: Final = {"bf16": (40.5, 20.3), "fp32": (57.0, 24.4)}
"""Bytes that autograd keeps of a block, a token and a unit of width; and of a dual attention."""
_NUMBER: Final = {"bf16": 2, "fp32": 4}
_CLIP_TEXT: Final = 0.12e9 + 0.69e9
_T5: Final = 4.76e9
_VAE: Final = 0.084e9
_DECODE: Final = 4 * 4 * 256
"""Bytes a pixel of decoding: about four maps of 256 channels in float32 at once."""
_SCORERS: Final = {
    "clip-score": 0.43e9,
    "pickscore": 0.99e9,
    "hpsv2": 0.99e9,
    "image-reward": 0.45e9,
    "aesthetic": 0.43e9,
    "geneval": 0.50e9,
}
"""Parameters, float32, of scorers that live on the policy's card."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of one process."""

    parts: dict[str, float]
    """Bytes by what they are for; ``training`` and ``drawing`` do not last together."""
    flops: float
    """Of an epoch, all processes: model forwards and backwards alone."""
    forwards: float
    """Transformer forwards of one image an epoch, a backward counted as one."""
    shape: Shape

    @property
    def peak(self) -> float:
        """Bytes needed at once."""
        passing = {"training", "drawing"}
        lasting = sum(v for k, v in self.parts.items() if k not in passing)
        return lasting + max(self.parts[k] for k in passing)

    def fits(self, card: float) -> bool:
        """Whether a card of so many GB holds it, a tenth left free."""
        return self.peak <= card * 1e9 * _FREE


def estimate(plan: Plan, *, processes: int = 1, sharded: bool = False) -> Estimate | None:
    """Estimate a recipe's run; None where the policy is no SD3 or has no known shape.

    Args:
        plan: A checked recipe.
        processes: How many share an epoch.
        sharded: Whether the frozen transformer is split over them (FSDP2).
    """
    config = plan.policy_config
    known = _known(config) if isinstance(config, Sd3Config) else None
    if known is None:
        return None
    transformer, text_numbers = known
    shape = measure_shape(meta_transformer(transformer), config.lora.rank, config.lora.targets)
    side = (config.resolution or transformer["sample_size"] * 8) // 8 // transformer["patch_size"]
    image, text = side**2, CLIP_TOKENS + config.max_sequence_length
    forwards, flops = _work(plan, shape, image, text)
    parts = _lasting(plan, shape, text_numbers, processes if sharded else 1)
    parts["epoch's samples"] = _samples(plan, transformer, side, text)
    parts["training"] = plan.recipe.micro_batch * _activations(plan, shape, image, text)
    parts["drawing"] = _drawing(plan, shape, image, text, processes)
    return Estimate(parts, flops, forwards, shape)


def _known(config: Sd3Config) -> tuple[dict[str, Any], float] | None:
    """The transformer's config, and parameters of the text encoders."""
    folder = Path(config.base)
    if config.base == "starter":
        return None
    if (file := folder / "transformer" / "config.json").is_file():
        return read_yaml(file), sum(map(_numbers, folder.glob("text_encoder*/*.safetensors")))
    return (SD35_MEDIUM, _CLIP_TEXT + _T5) if "3.5-medium" in config.base else None


def _numbers(file: Path) -> float:
    """Parameters in a safetensors file, by its header."""
    with safe_open(file, "pt") as tensors:
        return float(sum(prod(tensors.get_slice(k).get_shape()) for k in tensors.keys()))  # noqa: SIM118 - no mapping


def _lasting(plan: Plan, shape: Shape, text_numbers: float, shards: int) -> dict[str, float]:
    config, number = plan.policy_config, _NUMBER[plan.recipe.precision]
    text = text_numbers * number
    # new, old, EMA, two moments, a gradient and its flat copy
    copies = 7 + (len(plan.rewards) + 1 if plan.aggregator.name != "weighted-sum" else 0)
    here = {n: p for n, p in _SCORERS.items() if n in plan.rewards}
    own = sum(p for n, p in here.items() if not plan.recipe.rewards[n].device)
    return {
        "transformer": shape.parameters * number / shards,
        "text encoders": 0.0 if config.text_device == "cpu" else text,
        "VAE": _VAE * 4,
        "LoRA and optimiser": 4.0 * copies * shape.lora,
        "rewards": 4.0 * own,
    }


def _samples(plan: Plan, transformer: Mapping[str, Any], side: int, text: int) -> float:
    """Bytes of an epoch's latents and embeddings, which every process holds."""
    groups, config = plan.recipe.groups, plan.policy_config
    pixels = (side * transformer["patch_size"]) ** 2
    kept = 1 if plan.method.name in ("nft", "awm") else 1 + 2 * plan.recipe.sampler.steps
    one = 4.0 * kept * transformer["in_channels"] * pixels
    if config.text_device != "cpu":
        one += text * transformer["joint_attention_dim"] * _NUMBER[plan.recipe.precision]
    return float(groups.prompts_per_epoch * groups.group_size * one)


def _activations(plan: Plan, shape: Shape, image: int, text: int) -> float:
    """Bytes of one sample's graph."""
    block, dual = _SAVED[plan.recipe.precision]
    one = shape.width * (image + text) * block
    second = shape.width * image * dual
    if plan.policy_config.gradient_checkpointing:
        inputs = shape.width * (image + text) * _NUMBER[plan.recipe.precision] * shape.blocks
        return inputs + one + second
    return one * shape.blocks + second * max(shape.dual - 1, 0)


def _drawing(plan: Plan, shape: Shape, image: int, text: int, processes: int) -> float:
    groups, config = plan.recipe.groups, plan.policy_config
    images = groups.prompts_per_epoch * groups.group_size
    rows = -(-min(plan.recipe.sampler.rollout_batch or images, images) // processes)
    forward = rows * shape.width * (image + text) * _SAVED[plan.recipe.precision][0]
    pixels = 256.0 * image
    decoding: float = min(config.decode_batch, rows) * pixels * _DECODE
    return max(forward, decoding)


def _work(plan: Plan, shape: Shape, image: int, text: int) -> tuple[float, float]:
    """Forwards of one image an epoch, and FLOPs of all images."""
    recipe, method = plan.recipe, plan.method_config
    steps = recipe.sampler.steps
    levels = max(1, int(steps * getattr(method, "timestep_fraction", 1.0)))
    # new and its backward (no gradient of weights but LoRA's); old unless its trace has it; base
    each = 2 + (plan.method.name in ("nft", "awm")) + (getattr(method, "kl", 0) > 0)
    forwards = steps * (1 if recipe.sampler.guidance_scale == 1 else 2) + levels * each
    images = recipe.groups.prompts_per_epoch * recipe.groups.group_size
    return forwards, forwards * images * forward_flops(shape, image, text)


def forward_flops(shape: Shape, image: int, text: int) -> float:
    """FLOPs of one forward of one image, a multiply-add as two; matrix products alone.

    Args:
        shape: Of the transformer.
        image: Image tokens.
        text: Text tokens.
    """
    width, both = float(shape.width), image + text
    joint = 2 * both * 12 * width**2 + 4 * both**2 * width
    second = 2 * image * 4 * width**2 + 4 * image**2 * width
    return shape.blocks * joint + shape.dual * second


def describe(found: Estimate, *, processes: int, epochs: int, tflops: float) -> Iterator[str]:
    """Lines to print.

    Args:
        found: The estimate.
        processes: How many share an epoch.
        epochs: Of the run.
        tflops: Assumed of each process, in training, 1e12/s.
    """
    shape, parts = found.shape, {k: v for k, v in found.parts.items() if v}
    yield (
        f"transformer {shape.parameters / 1e9:.2f} B, LoRA {shape.lora / 1e6:.1f} M "
        f"in {shape.lora_modules} projections"
    )
    yield "memory, estimated: " + ", ".join(f"{k} {v / 1e9:.1f}" for k, v in parts.items())
    cards = [f"{card} GB {'fits' if found.fits(card) else 'does not fit'}" for card in CARDS]
    yield f"peak {found.peak / 1e9:.0f} GB a process: {', '.join(cards)}"
    seconds = found.flops / (processes * tflops * 1e12)
    yield (
        f"model time, estimated at {tflops:g} TFLOP/s on each of {processes}: {seconds:.0f} s an "
        f"epoch, {seconds * epochs / 3600:.1f} h in all; rewards come on top"
    )
    yield from _advice(found.parts)


def _advice(parts: Mapping[str, float]) -> Iterator[str]:
    """What would help most, where the smallest card is too small."""
    helps = {
        "training": "model.gradient_checkpointing=true, or a smaller micro_batch",
        "drawing": "a smaller sampler.rollout_batch or model.decode_batch (1 is VAE slicing)",
        "text encoders": "model.text_device=cpu",
        "rewards": "rewards.NAME.device=cpu, or another card",
    }
    order = sorted((k for k in helps if parts[k] > 2e9), key=lambda k: -parts[k])
    if order:
        yield "to need less: " + "; ".join(f"{helps[k]} ({parts[k] / 1e9:.0f} GB)" for k in order)
