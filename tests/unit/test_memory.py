"""What a run is said to need: exact where it counts, close where it was measured."""

from typing import Any

import pytest
import torch
from diffusers import SD3Transformer2DModel
from peft.tuners.lora.layer import Linear

from recast_train.config import load_plan
from recast_train.memory import _SAVED, CARDS, describe, estimate, forward_flops
from recast_train.policies.sd3.adapters import Adapters
from recast_train.policies.sd3.config import ATTENTION, LoraBlock
from recast_train.policies.sd3.shapes import SD35_MEDIUM, measure_shape, meta_transformer
from recast_train.recipe_files import find_recipe


def _estimate(recipe: str, *sets: str, processes: int = 8) -> Any:
    return estimate(load_plan(find_recipe(recipe), sets), processes=processes)


def test_lora_hits_the_eight_projections_of_each_joint_block_and_nothing_else() -> None:
    model = meta_transformer(SD35_MEDIUM)
    with torch.device("meta"):
        adapters = Adapters(model, LoraBlock(rank=32, alpha=64), torch.Generator("cpu"))
    hit = [name for name, module in model.named_modules() if isinstance(module, Linear)]
    # The last block drops the text stream after attention, so that it has no to_add_out.
    wanted = {f"transformer_blocks.{b}.{t}" for b in range(24) for t in ATTENTION}
    assert set(hit) == wanted - {"transformer_blocks.23.attn.to_add_out"}
    assert len(hit) == 24 * 8 - 1
    numbers = sum(p.numel() for p in adapters.new.values())
    assert numbers == 191 * 32 * (1536 + 1536) == 18_776_064
    assert all(p.dtype == torch.float32 for p in adapters.new.values())


def test_the_shape_without_weights() -> None:
    shape = measure_shape(meta_transformer(SD35_MEDIUM), 32, ATTENTION)
    assert (shape.width, shape.blocks, shape.dual) == (1536, 24, 13)
    assert (shape.lora_modules, shape.lora) == (191, 18_776_064)
    assert shape.parameters == pytest.approx(2.24e9, rel=0.01)
    # By hand: 24 joint blocks on 1229 tokens (78.9e9 each), 13 second attentions on 1024 (25.8e9).
    assert forward_flops(shape, 1024, 205) == pytest.approx(24 * 78.87e9 + 13 * 25.77e9, rel=1e-3)


def test_cards() -> None:
    plain = _estimate("sd35m-ocr")
    assert [plain.fits(card) for card in CARDS] == [False, False, True, True]
    small = ("model.gradient_checkpointing=true", "model.text_device=cpu", "micro_batch=4")
    assert _estimate("sd35m-ocr", *small).fits(24)
    assert _estimate("sd35m-ocr", "model.text_device=cpu", "micro_batch=4").fits(48)
    assert _estimate("sd35m-marble").parts["LoRA and optimiser"] == 4 * 13 * 18_776_064
    lines = list(describe(plain, processes=8, epochs=61, tflops=300))
    assert "24 GB does not fit, 48 GB does not fit, 80 GB fits, 141 GB fits" in lines[2]
    assert "gradient_checkpointing" in lines[-1]


def test_an_epoch_s_samples_are_held() -> None:
    images, latent, embeds = 1152, 4 * 16 * 64 * 64, 2 * 205 * 4096
    assert _estimate("sd35m-ocr").parts["epoch's samples"] == images * (latent + embeds)
    path = ("method={kind: flow-grpo}", "model.text_device=cpu")  # states and means of 25 steps
    assert _estimate("sd35m-ocr", *path).parts["epoch's samples"] == images * latent * 51


def test_work_is_what_the_method_does() -> None:
    # 25 forwards of the rollout; 24 levels: new, its backward, old, base.
    assert _estimate("sd35m-ocr").forwards == 25 + 24 * 4
    assert _estimate("sd35m-ocr", "method.kl=0").forwards == 25 + 24 * 3
    assert _estimate("sd35m-ocr", "sampler.guidance_scale=4").forwards == 50 + 24 * 4
    assert estimate(load_plan(find_recipe("starter-static"))) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_kept_bytes_are_what_autograd_keeps(dtype: torch.dtype) -> None:
    three, two = _kept(3, dtype), _kept(2, dtype)
    dual = _kept(3, dtype, dual=2)
    block, second = _SAVED["bf16" if dtype == torch.bfloat16 else "fp32"]
    assert (three - two) / (64 + 32) == pytest.approx(block, rel=0.05)
    assert (dual - three) / 64 == pytest.approx(second, rel=0.05)


def _kept(layers: int, dtype: torch.dtype, dual: int = 0) -> float:
    """Bytes that autograd keeps of a sample of 64 + 32 tokens, a unit of width."""
    with torch.random.fork_rng():
        model = SD3Transformer2DModel(
            sample_size=16,
            num_layers=layers,
            num_attention_heads=2,
            joint_attention_dim=64,
            caption_projection_dim=128,
            pooled_projection_dim=64,
            pos_embed_max_size=16,
            dual_attention_layers=tuple(range(dual)),
            qk_norm="rms_norm",
        ).to(dtype)
    adapters = Adapters(model, LoraBlock(rank=4, alpha=4), torch.Generator().manual_seed(0))
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, tuple[int, Any]] = {}

    def pack(x: Any) -> Any:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = (storage.nbytes(), x)  # held, so that no place is reused
        return x

    half = torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16)
    with adapters.use("new"), half, torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        found = model(
            hidden_states=torch.ones(2, 16, 16, 16, dtype=dtype),
            timestep=torch.ones(2),
            encoder_hidden_states=torch.ones(2, 32, 64, dtype=dtype),
            pooled_projections=torch.ones(2, 64, dtype=dtype),
        )
    assert found.sample.requires_grad
    return sum(size for size, _ in kept.values()) / 2 / 128
