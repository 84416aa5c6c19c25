"""bfloat16 weights, float32 adapters: nothing that training needs is rounded away."""

from pathlib import Path
from typing import Any

import pytest
import torch

from recast_eval.errors import ConfigError
from recast_train.policies.base import PolicySetup
from recast_train.policies.sd3.config import LoraBlock, Sd3Config
from recast_train.policies.sd3.policy import Sd3Policy, build
from tests.support.tiny_sd3 import save_tiny_sd3

PROMPTS = ["a red card", "a card"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_sd3(tmp_path_factory.mktemp("base") / "tiny", t5=True)


def _policy(base: Path, precision: Any = "bf16", **model: Any) -> Sd3Policy:
    setup = PolicySetup(
        steps=3,
        guidance_scale=1.0,
        solver="euler",
        shift=None,
        rollout_batch=0,
        precision=precision,
        device="cpu",
        seed=0,
    )
    lora = model.pop("lora", LoraBlock(rank=2, alpha=4))
    return build(Sd3Config(base=str(base), max_sequence_length=4, lora=lora, **model), setup)


def _gradient(policy: Sd3Policy) -> torch.Tensor:
    noise = torch.randn(2, 4, 4, 4, generator=torch.Generator().manual_seed(1))
    level = torch.full((2,), 0.6)
    v = policy.velocity(noise, level, policy.encode(PROMPTS), who="new")
    (v - noise).square().mean().backward()
    return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])


def _shake(policy: Sd3Policy) -> None:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in policy.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * 0.3)


def test_the_base_is_half_and_the_adapter_whole(base: Path) -> None:
    policy = _policy(base)
    assert policy.pipeline.transformer.dtype == torch.bfloat16
    assert policy.pipeline.vae.dtype == torch.float32
    assert {p.dtype for p in policy.parameters()} == {torch.float32}
    assert {p.dtype for p in policy.adapters.old.values()} == {torch.float32}


def test_gradients_agree_with_float32(base: Path) -> None:
    gradients = []
    for precision in ("bf16", "fp32"):
        policy = _policy(base, precision)
        _shake(policy)
        gradients.append(_gradient(policy))
    half, whole = gradients
    assert half.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(half, whole, dim=0) > 0.995
    assert half.norm() == pytest.approx(float(whole.norm()), rel=0.05)


def test_a_step_that_bfloat16_would_lose_is_kept(base: Path) -> None:
    policy = _policy(base)
    _shake(policy)
    policy.update_old(0.0)
    before = [p.detach().clone() for p in policy.parameters()]
    with torch.no_grad():
        for p in policy.parameters():
            p.mul_(1 + 1e-4)
    assert all(not torch.equal(p, b) for p, b in zip(policy.parameters(), before, strict=True))
    policy.update_old(0.999)
    for old, was in zip(policy.adapters.old.values(), before, strict=True):
        assert not torch.equal(old, was)


def test_checkpointing_changes_memory_and_no_gradient(base: Path) -> None:
    found = []
    for on in (False, True):
        policy = _policy(base, gradient_checkpointing=on)
        _shake(policy)
        found.append(_gradient(policy))
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_decoding_one_by_one_is_decoding_together(base: Path) -> None:
    latents = torch.randn(3, 4, 4, 4, generator=torch.Generator().manual_seed(2))
    one, all_ = (_policy(base, decode_batch=n).decode(latents) for n in (1, 32))
    assert abs(one.astype(int) - all_.astype(int)).max() <= 1


def test_text_may_be_encoded_elsewhere(base: Path) -> None:
    there, here = _policy(base, text_device="cpu"), _policy(base)
    for a, b in zip(*(p.encode(PROMPTS).tensors.values() for p in (there, here)), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_an_earlier_adapter_is_gone_on_from(base: Path, tmp_path: Path) -> None:
    first = _policy(base)
    _shake(first)
    first.save_adapter(tmp_path / "adapter")
    start = LoraBlock(rank=2, alpha=4, continue_from=str(tmp_path / "adapter"))
    second = _policy(base, lora=start)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    assert second.on_policy
    wide = LoraBlock(rank=4, alpha=4, continue_from=str(tmp_path / "adapter"))
    with pytest.raises(ConfigError, match="has no fitting"):
        _policy(base, lora=wide)
    with pytest.raises(ConfigError, match=r"alpha: 8, but .* says 4"):
        _policy(base, lora=LoraBlock(rank=2, alpha=8, continue_from=str(tmp_path / "adapter")))
    with pytest.raises(ConfigError, match="is missing"):
        _policy(base, lora=LoraBlock(rank=2, continue_from=str(tmp_path)))


def test_without_t5_its_tokens_are_zeros(tmp_path: Path) -> None:
    policy = _policy(save_tiny_sd3(tmp_path / "small"))
    embeds = policy.encode(PROMPTS).tensors["embeds"]
    assert embeds[:, -4:].abs().max() == 0
    assert embeds[:, :12].abs().max() > 0
    assert _gradient(policy).isfinite().all()
