"""The SD3 policy on a tiny random pipeline: three sets of weights, one sampler, plain files."""

from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel

from recast_eval.errors import ConfigError
from recast_train.policies.base import PolicySetup
from recast_train.policies.sd3.config import LoraBlock, Sd3Config
from recast_train.policies.sd3.policy import Sd3Policy, build
from tests.support.tiny_sd3 import save_tiny_sd3, tiny_sd3

PROMPTS = ["a red card", "a blue card", "a red card"]


def _setup(**changes: object) -> PolicySetup:
    values = {
        "steps": 4,
        "guidance_scale": 1.0,
        "solver": "euler",
        "shift": None,
        "rollout_batch": 0,
        "precision": "fp32",
        "device": "cpu",
        "seed": 0,
    }
    return PolicySetup(**(values | changes))  # type: ignore[arg-type]


def _policy(*, t5: bool = False, rank: int = 2, **changes: object) -> Sd3Policy:
    config = Sd3Config(max_sequence_length=6, lora=LoraBlock(rank=rank, alpha=4.0))
    return Sd3Policy(tiny_sd3(t5=t5), config, _setup(**changes))


def _inputs(policy: Sd3Policy) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, 4, 4, 4, generator=generator)
    return x, torch.tensor([0.9, 0.5, 0.1])


def _shake(policy: Sd3Policy, seed: int = 2) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)


def test_starts_as_the_base_model_and_only_new_learns() -> None:
    policy = _policy()
    x, sigma = _inputs(policy)
    condition = policy.encode(PROMPTS)
    velocities = {
        w: policy.velocity(x, sigma, condition, who=w) for w in ("new", "old", "reference")
    }
    torch.testing.assert_close(velocities["new"], velocities["reference"], rtol=0, atol=0)
    assert velocities["new"].requires_grad
    assert not velocities["old"].requires_grad
    assert policy.on_policy
    assert len(policy.parameters()) == 2 * (8 + 7)  # the last block has no to_add_out
    velocities["new"].square().mean().backward()
    assert all(p.grad is not None for p in policy.parameters())
    trainable = [n for n, p in policy.pipeline.transformer.named_parameters() if p.requires_grad]
    assert trainable
    assert all(".new." in n for n in trainable)


def test_a_graph_survives_looking_at_the_other_weights() -> None:
    policy = _policy()
    _shake(policy)
    x, sigma = _inputs(policy)
    condition = policy.encode(PROMPTS)
    gradients = []
    for look in (False, True):
        new = policy.velocity(x, sigma, condition, who="new")
        if look:
            policy.velocity(x, sigma, condition, who="old")
            policy.velocity(x, sigma, condition, who="reference")
        new.square().mean().backward()
        gradients.append([p.grad for p in policy.parameters()])
        for parameter in policy.parameters():
            parameter.grad = None
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    # The last block drops its text tokens, so that their query has no effect: 2 matrices.
    assert sum(bool((g == 0).all()) for g in gradients[0]) == 2


def test_merged_weights_draw_the_same_and_are_put_back_to_the_bit() -> None:
    policy = _policy()
    _shake(policy)
    policy.update_old(0.0)
    x, sigma = _inputs(policy)
    condition = policy.encode(PROMPTS)
    before = {w: policy.velocity(x, sigma, condition, who=w) for w in ("old", "reference")}
    with policy.adapters.merged("old"):
        inside = policy.velocity(x, sigma, condition, who="old")
        with pytest.raises(ValueError, match="old is merged"):
            policy.velocity(x, sigma, condition, who="reference")
    assert not torch.equal(before["old"], before["reference"])
    torch.testing.assert_close(inside, before["old"], rtol=1e-5, atol=1e-5)
    for who, value in before.items():
        assert torch.equal(policy.velocity(x, sigma, condition, who=who), value)


def test_rollouts_may_have_a_precision_of_their_own() -> None:
    plain, half = _policy(), _policy(rollout_precision="bf16")
    drawn = [
        p.rollout(p.encode(PROMPTS), torch.Generator().manual_seed(1), {}).x_0
        for p in (plain, half)
    ]
    assert not torch.equal(*drawn)
    torch.testing.assert_close(*drawn, rtol=0, atol=0.1)
    x, sigma = _inputs(plain)
    velocities = [p.velocity(x, sigma, p.encode(PROMPTS), who="new") for p in (plain, half)]
    assert torch.equal(*velocities)


def test_half_precision_is_not_merged() -> None:
    policy = _policy()
    _shake(policy)
    policy.pipeline.transformer.to(torch.bfloat16)
    with policy.adapters.merged("old"):
        assert policy.velocity(*_inputs(policy), policy.encode(PROMPTS), who="reference").any()


def test_old_follows_new() -> None:
    policy = _policy()
    _shake(policy)
    x, sigma = _inputs(policy)
    condition = policy.encode(PROMPTS)
    assert not policy.on_policy
    before = [p.clone() for p in policy.adapters.old.values()]
    policy.update_old(0.75)
    for old, was, new in zip(
        policy.adapters.old.values(), before, policy.parameters(), strict=True
    ):
        torch.testing.assert_close(old, 0.75 * was + 0.25 * new)
    policy.update_old(0.0)
    assert policy.on_policy
    new, old = (policy.velocity(x, sigma, condition, who=w) for w in ("new", "old"))
    # Kernels with and without a graph may round differently.
    torch.testing.assert_close(new, old, rtol=1e-4, atol=1e-6)


def test_rollout_is_what_diffusers_draws(tmp_path: Path) -> None:
    policy = _policy()
    rollout = policy.rollout(policy.encode(["a red card"]), torch.Generator().manual_seed(3), {})
    pipeline = tiny_sd3()
    pipeline.set_progress_bar_config(disable=True)
    theirs = pipeline(
        "a red card",
        num_inference_steps=4,
        guidance_scale=1.0,
        max_sequence_length=6,
        latents=torch.randn(1, 4, 4, 4, generator=torch.Generator().manual_seed(3)),
        output_type="np",
    ).images[0]
    images = policy.decode(rollout.x_0)
    assert images.dtype == np.uint8
    assert images.shape == (1, 16, 16, 3)
    assert np.abs(images[0] / 255 - theirs).max() <= 1.01 / 255


def test_guidance_is_what_diffusers_does() -> None:
    policy = _policy(guidance_scale=3.0)
    rollout = policy.rollout(policy.encode(["a red card"]), torch.Generator().manual_seed(3), {})
    pipeline = tiny_sd3()
    pipeline.set_progress_bar_config(disable=True)
    latents = torch.randn(1, 4, 4, 4, generator=torch.Generator().manual_seed(3))
    theirs = pipeline(
        "a red card",
        num_inference_steps=4,
        guidance_scale=3.0,
        max_sequence_length=6,
        latents=latents,
        output_type="latent",
    ).images
    torch.testing.assert_close(rollout.x_0, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("solver", ["euler", "dpm2"])
def test_chunks_and_shares_draw_the_same(solver: str) -> None:
    whole, chunked = _policy(solver=solver), _policy(solver=solver, rollout_batch=2)
    condition = whole.encode(PROMPTS)
    wanted = whole.rollout(condition, torch.Generator().manual_seed(4), {}).x_0
    got = chunked.rollout(condition, torch.Generator().manual_seed(4), {}).x_0
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    last = condition.take(torch.tensor([2]))
    share = whole.rollout(last, torch.Generator().manual_seed(4), {"rows": (2, 3, 3)}).x_0
    torch.testing.assert_close(share, wanted[2:], rtol=1e-4, atol=1e-5)


def test_an_embedding_does_not_depend_on_its_neighbours() -> None:
    policy, other = _policy(), _policy()
    alone = policy.encode(["a blue card"]).tensors
    among = other.encode(PROMPTS).tensors
    assert torch.equal(alone["embeds"][0], among["embeds"][1])
    assert torch.equal(policy.encode(["a blue card"]).tensors["pooled"], alone["pooled"])


def test_t5_is_used_where_there_is_one() -> None:
    policy = _policy(t5=True)
    embeds = policy.encode(["a red card"]).tensors["embeds"]
    assert embeds.shape == (1, 12 + 6, 32)
    assert embeds[0, 12:].abs().sum() > 0
    assert _policy().encode(["a red card"]).tensors["embeds"][0, 12:].abs().sum() == 0


def test_the_adapter_is_a_plain_one(tmp_path: Path) -> None:
    policy = _policy()
    _shake(policy)
    x, sigma = _inputs(policy)
    condition = policy.encode(PROMPTS)
    wanted = policy.velocity(x, sigma, condition, who="new").detach()
    policy.save_adapter(tmp_path / "adapter")

    def forward(transformer: torch.nn.Module) -> torch.Tensor:
        with torch.no_grad():
            return transformer(
                hidden_states=x,
                timestep=sigma * 1000,
                encoder_hidden_states=condition.tensors["embeds"],
                pooled_projections=condition.tensors["pooled"],
                return_dict=False,
            )[0]

    pipeline = tiny_sd3()
    plain = forward(pipeline.transformer)
    pipeline.load_lora_weights(str(tmp_path / "adapter"))
    torch.testing.assert_close(forward(pipeline.transformer), wanted, rtol=1e-4, atol=1e-5)
    assert (wanted - plain).abs().max() > 1e-2
    wrapped = PeftModel.from_pretrained(tiny_sd3().transformer, str(tmp_path / "adapter"))
    torch.testing.assert_close(forward(wrapped), wanted, rtol=1e-4, atol=1e-5)


def test_training_goes_on_from_an_adapter(tmp_path: Path) -> None:
    first = _policy()
    _shake(first)
    first.save_adapter(tmp_path / "a")
    lora = LoraBlock(rank=2, alpha=4.0, continue_from=str(tmp_path / "a"))
    second = Sd3Policy(tiny_sd3(), Sd3Config(lora=lora), _setup())
    for got, wanted in zip(second.parameters(), first.parameters(), strict=True):
        assert torch.equal(got, wanted)
    assert second.on_policy
    other = LoraBlock(rank=3, alpha=4.0, continue_from=str(tmp_path / "a"))
    with pytest.raises(ConfigError, match="has no fitting"):
        Sd3Policy(tiny_sd3(), Sd3Config(lora=other), _setup())
    nowhere = LoraBlock(rank=2, continue_from=str(tmp_path / "b"))
    with pytest.raises(ConfigError, match="is missing"):
        Sd3Policy(tiny_sd3(), Sd3Config(lora=nowhere), _setup())


def test_state_puts_everything_back() -> None:
    policy, other = _policy(), _policy()
    _shake(policy)
    policy.update_old(0.5)
    other.load_state(policy.state())
    for a, b in zip(policy.adapters.old.values(), other.adapters.old.values(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(policy.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_folders_and_what_is_none(tmp_path: Path) -> None:
    base = save_tiny_sd3(tmp_path / "tiny")
    built = build(Sd3Config(base=str(base)), _setup(shift=1.0))
    torch.testing.assert_close(
        built.sigmas, torch.tensor([1.0, 0.667, 0.334, 0.001, 0.0]), atol=2e-3, rtol=0
    )
    for bad in (tmp_path / "none", tmp_path):
        with pytest.raises(ConfigError, match=r"model\.base: cannot load"):
            build(Sd3Config(base=str(bad)), _setup())
    for resolution, law in ((20, "multiple of 8"), (64, "at most 32")):
        with pytest.raises(ConfigError, match=law):
            Sd3Policy(tiny_sd3(), Sd3Config(resolution=resolution), _setup())
    with pytest.raises(ConfigError, match=r"lora\.targets"):
        Sd3Policy(tiny_sd3(), Sd3Config(lora=LoraBlock(targets=("nothing",))), _setup())


def test_checkpointing_changes_no_gradient() -> None:
    plain = _policy()
    config = Sd3Config(
        max_sequence_length=6, lora=LoraBlock(rank=2, alpha=4.0), gradient_checkpointing=True
    )
    saving = Sd3Policy(tiny_sd3(), config, _setup())
    for policy in (plain, saving):
        _shake(policy)
        x, sigma = _inputs(policy)
        policy.velocity(x, sigma, policy.encode(PROMPTS), who="new").square().mean().backward()
    for a, b in zip(plain.parameters(), saving.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-7)


def test_estimates_and_completions_start_where_they_should() -> None:
    policy = _policy()
    condition = policy.encode(PROMPTS)
    x_0, noise = torch.ones(3, 4, 4, 4), torch.full((3, 4, 4, 4), 3.0)
    sigma = policy.sigmas[2]
    x_t = policy.noised(x_0, 2, noise)
    torch.testing.assert_close(x_t, torch.full_like(x_t, float(1 + 2 * sigma)))
    levels = sigma.expand(3)
    v = policy.velocity(x_t, levels, condition, who="old")
    torch.testing.assert_close(policy.estimate(x_t, levels, condition), x_t - sigma * v)
    drawn = policy.complete(x_t, 3, condition, torch.Generator().manual_seed(0))
    last = policy.sigmas[3]
    v = policy.velocity(x_t, last.expand(3), condition, who="old")
    torch.testing.assert_close(drawn, x_t - last * v, rtol=1e-5, atol=1e-5)  # to 0: no noise
    assert policy.features(x_0).tolist() == [[1.0] * 4 + [0.0] * 4] * 3
