"""SD3.5-Medium's own architecture on a GPU, with random weights: time, memory, and where it goes.

    python benchmarks/gpu_sd35.py [--images 8] [--micro-batch 8] [--repeats 5] [--checkpointing]
    python benchmarks/gpu_sd35.py --tiny          # the same code on a small model, on a CPU

512 pixels, LoRA rank 32, bfloat16 with float32 adapters, 25 solver steps, as `sd35m-ocr`. Random
weights take the time of real ones. Prompts are random embeddings of the real size (77 + 128
tokens), as encoding happens once a prompt. One JSON line:

- `image_seconds`, `decode_seconds`: a rollout image (all solver steps), and its decoding;
- `item_seconds`: one work item of NFT, that is a micro-batch at one noise level: new with graph,
  old and base without, loss and backward. `step_seconds` is that times the items of one optimiser
  step of the recipe on so many processes, computed and not timed;
- `peak_gb` of memory while training and while drawing;
- `matmul_tflops`: a bfloat16 product of 8192 x 8192, the rate that the chip reaches here;
  `model_tflops`: the model's matrix products over the time; `share_of_matmul_rate` their ratio;
- `kernels`: share of device time in matrix products, in attention, and in the rest.

Without a GPU and without --tiny it says so and does nothing.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from recast_train.memory import forward_flops
from recast_train.methods.base import Work
from recast_train.methods.nft import Nft, NftConfig
from recast_train.policies.base import Condition, PolicySetup, Rollout
from recast_train.policies.sd3.config import LoraBlock, Sd3Config
from recast_train.policies.sd3.policy import Sd3Policy
from recast_train.policies.sd3.shapes import SD35_MEDIUM, measure_shape
from recast_train.update import accumulate

TINY = {
    "sample_size": 8,
    "num_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 32,
    "caption_projection_dim": 32,
    "pooled_projection_dim": 16,
    "pos_embed_max_size": 16,
    "dual_attention_layers": [0],
}
PRODUCTS = ("mm", "addmm", "bmm", "linear", "gemm")
STEPS, LEVELS, EPOCH_IMAGES = 25, 24, 48 * 24


def pipeline_of(tiny: bool, device: str) -> Any:
    """Transformer, VAE and scheduler of SD3.5 with random weights; no text encoders."""
    from diffusers import (
        AutoencoderKL,
        FlowMatchEulerDiscreteScheduler,
        SD3Transformer2DModel,
        StableDiffusion3Pipeline,
    )

    config = SD35_MEDIUM | (TINY if tiny else {})
    widths = (8, 8, 8, 8) if tiny else (128, 256, 512, 512)
    torch.manual_seed(0)
    with torch.device(device):
        transformer = SD3Transformer2DModel.from_config(config)
        vae = AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            block_out_channels=widths,
            layers_per_block=1 if tiny else 2,
            latent_channels=16,
            norm_num_groups=4 if tiny else 32,
            use_quant_conv=False,
            use_post_quant_conv=False,
            scaling_factor=1.5305,
            shift_factor=0.0609,
        )
    return StableDiffusion3Pipeline(
        transformer=transformer.to(torch.bfloat16),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=vae,
        **{f"{kind}{n}": None for kind in ("text_encoder", "tokenizer") for n in ("", "_2", "_3")},
    )


def build(options: argparse.Namespace, device: str) -> Sd3Policy:
    """The policy as the recipe builds it."""
    config = Sd3Config(
        base="random",
        resolution=64 if options.tiny else 512,
        lora=LoraBlock(rank=4 if options.tiny else 32, alpha=64),
        gradient_checkpointing=options.checkpointing,
        decode_batch=4,
    )
    setup = PolicySetup(
        steps=2 if options.tiny else STEPS,
        guidance_scale=1.0,
        solver="euler",
        shift=None,
        rollout_batch=options.images,
        precision="bf16",
        device=device,
        seed=0,
    )
    return Sd3Policy(pipeline_of(options.tiny, device), config, setup)


def condition_of(policy: Sd3Policy, count: int, device: str) -> Condition:
    """Random embeddings of the size of three text encoders' ones."""
    config = policy.pipeline.transformer.config
    tokens = 77 + 128
    half = {"device": device, "dtype": torch.bfloat16}
    embeds = torch.randn(count, tokens, config.joint_attention_dim, **half)
    return Condition(
        {"embeds": embeds, "pooled": torch.randn(count, config.pooled_projection_dim, **half)}
    )


def seconds(work: Callable[[], object], repeats: int, device: str) -> float:
    """Median time of a call, after one that does not count."""
    times = []
    for number in range(repeats + 1):
        began = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        if number:
            times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2]


def matmul_rate(size: int, repeats: int, device: str) -> float:
    """FLOP/s of a square bfloat16 product."""
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / seconds(lambda: a @ b, repeats, device)


def kernel_shares(work: Callable[[], object], device: str) -> dict[str, float]:
    """Share of device time (CPU: of operators' own time) by what it is spent on."""
    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with profile(activities=kinds) as found:
        work()
    totals = {"products": 0.0, "attention": 0.0, "rest": 0.0}
    for event in found.key_averages():
        own = event.self_device_time_total if device == "cuda" else event.self_cpu_time_total
        name = event.key.lower()
        if any(word in name for word in ("attention", "flash", "fmha")):
            totals["attention"] += own
        else:
            totals["products" if any(word in name for word in PRODUCTS) else "rest"] += own
    whole = sum(totals.values()) or 1.0
    return {name: round(value / whole, 4) for name, value in totals.items()}


def peak_gb(work: Callable[[], object], device: str) -> float | None:
    """Peak of allocated memory during a call; None where nothing counts it."""
    if device != "cuda":
        work()
        return None
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return round(torch.cuda.max_memory_allocated() / 1e9, 2)


def measure(options: argparse.Namespace, device: str) -> dict[str, Any]:
    """All figures."""
    policy, method = build(options, device), Nft(NftConfig(beta=0.1))
    condition = condition_of(policy, options.images, device)
    generator = torch.Generator().manual_seed(1)
    rollout = policy.rollout(condition, generator, {})
    count = min(options.micro_batch, options.images)
    noise = torch.randn(count, *rollout.x_0.shape[1:], generator=generator)
    middle = torch.full((count,), len(policy.sigmas) // 2)
    item = Work(torch.arange(count), middle, noise, 1.0)
    advantages = torch.randn(len(policy.sigmas) - 1, options.images, generator=generator)
    with torch.no_grad():  # off-policy, so that old has a forward of its own
        policy.parameters()[0].add_(1e-3)

    def draw() -> Rollout:
        return policy.rollout(condition, torch.Generator().manual_seed(2), {})

    def train() -> dict[str, float]:
        return accumulate(method, policy, rollout, iter([item]), advantages)

    memory = {"training": peak_gb(train, device), "drawing": peak_gb(draw, device)}
    drawn = seconds(draw, options.repeats, device) / options.images
    decoded = seconds(lambda: policy.decode(rollout.x_0), options.repeats, device) / options.images
    trained = seconds(train, options.repeats, device)
    rate = matmul_rate(256 if options.tiny else 8192, options.repeats, device)
    shape = measure_shape(policy.pipeline.transformer, 4 if options.tiny else 32, ())
    side = rollout.x_0.shape[-1] // 2
    # new, its backward, old, base
    model = 4 * count * forward_flops(shape, side**2, 77 + 128) / trained
    items = EPOCH_IMAGES / count * LEVELS
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "images": options.images,
        "micro_batch": count,
        "checkpointing": options.checkpointing,
        "lora_parameters": sum(p.numel() for p in policy.parameters()),
        "image_seconds": round(drawn, 5),
        "decode_seconds": round(decoded, 5),
        "item_seconds": round(trained, 5),
        "step_seconds": {n: round(items * trained / n, 1) for n in (1, 8)},
        "peak_gb": memory,
        "matmul_tflops": round(rate / 1e12, 3),
        "model_tflops": round(model / 1e12, 3),
        "share_of_matmul_rate": round(model / rate, 4),
        "kernels": {
            "training": kernel_shares(train, device),
            "drawing": kernel_shares(draw, device),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="a small model on the CPU")
    options = parser.parse_args()
    if not options.tiny and not torch.cuda.is_available():
        print(json.dumps({"benchmark": "gpu_sd35", "skipped": "no GPU; --tiny runs on a CPU"}))
        return
    found = measure(options, "cpu" if options.tiny else "cuda")
    print(json.dumps({"benchmark": "gpu_sd35", "tiny": options.tiny, **found}))


if __name__ == "__main__":
    main()
