"""The masked policy on tiny random models of the real classes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import AmusedScheduler
from diffusers.schedulers.scheduling_amused import mask_by_random_topk

from recast_eval.errors import ConfigError
from recast_train.policies.masked.order import (
    draw_tokens,
    halton_rank,
    least_confident,
    planned_steps,
)
from recast_train.rebrl import mask_counts, stage_masks
from tests.support.masked_models import make_policy, write_model

PROMPTS = ["a red circle", "a blue square", "two stars"]
pytestmark = pytest.mark.filterwarnings("ignore:Already found a `peft_config`:UserWarning")
ORDERS = ["random", "halton", "emerge", "confidence"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("masked"))


@pytest.mark.parametrize("order", ["random", "halton"])
def test_planned_orders_reveal_what_the_schedule_says(order: str) -> None:
    counts = mask_counts(36, 5)
    noise = torch.rand(7, 36, generator=torch.Generator().manual_seed(1))
    steps = planned_steps(order, noise, counts, (6, 6))
    for row in stage_masks(steps.numpy(), 5):
        assert row.sum(1).tolist() == counts[:-1].tolist()
    assert len({tuple(r) for r in steps.tolist()}) > 1


def test_emerge_reveals_as_many_on_average() -> None:
    counts = mask_counts(36, 5)
    noise = torch.rand(4000, 36, generator=torch.Generator().manual_seed(1))
    masks = stage_masks(planned_steps("emerge", noise, counts, (6, 6)).numpy(), 5)
    np.testing.assert_allclose(masks.sum(-1).mean(0), counts[:-1], atol=0.25)  # 5 standard errors


def test_halton_visits_every_place_once_and_spreads() -> None:
    rank = halton_rank(8, 8)
    assert sorted(rank.tolist()) == list(range(64))
    quarter = (rank.reshape(8, 8) < 16).reshape(2, 4, 2, 4).sum((1, 3))
    assert quarter.min() >= 3  # a quarter of the tokens is in every quarter of the grid


def test_least_confident_keeps_what_diffusers_keeps() -> None:
    generator = torch.Generator().manual_seed(3)
    probability, masked = (
        torch.rand(5, 20, generator=generator),
        torch.ones(5, 20, dtype=torch.bool),
    )
    masked[:, :4] = False
    kept = least_confident(
        probability, masked, torch.rand(5, 20, generator=generator), keep_masked=9, temperature=0.0
    )
    sure = torch.where(masked, probability, torch.finfo(torch.float32).max)
    want = mask_by_random_topk(torch.full((5, 1), 9), sure, 0.0, generator)
    assert torch.equal(kept, want)


def test_tokens_are_drawn_from_their_distribution() -> None:
    law = torch.tensor([0.1, 0.0, 0.6, 0.3])
    noise = torch.rand(1, 20_000, generator=torch.Generator().manual_seed(0))
    drawn = draw_tokens(law.log().expand(1, 20_000, 4), noise)
    share = torch.bincount(drawn[0], minlength=4) / 20_000
    assert torch.allclose(share, law, atol=0.015)  # four standard errors
    assert share[1] == 0


@pytest.mark.parametrize("order", ORDERS)
def test_a_rollout_records_when_each_token_was_revealed(model: Path, order: str) -> None:
    policy = make_policy(model, order=order)
    rollout = policy.rollout(policy.encode(PROMPTS), torch.Generator().manual_seed(0), {})
    steps = rollout.trace["decode_step"]
    assert rollout.x_0.shape == steps.shape == (3, 16)
    assert int(rollout.x_0.max()) < policy.mask_id
    if order != "emerge":
        masks = stage_masks(steps.numpy(), 4)
        assert (masks.sum(-1) == policy.counts[:-1]).all()
    assert policy.decode(rollout.x_0).shape == (3, 64, 64, 3)


@pytest.mark.parametrize("order", ORDERS)
def test_rollouts_depend_on_the_generator_alone(model: Path, order: str) -> None:
    policy = make_policy(model, order=order)
    condition = policy.encode(PROMPTS)
    before = torch.get_rng_state()
    first = policy.rollout(condition, torch.Generator().manual_seed(5), {})
    again = policy.rollout(condition, torch.Generator().manual_seed(5), {})
    assert torch.equal(first.x_0, again.x_0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("order", ORDERS)
def test_any_split_of_the_rows_draws_the_same(model: Path, order: str) -> None:
    policy = make_policy(model, order=order)
    condition = policy.encode(PROMPTS)
    whole = policy.rollout(condition, torch.Generator().manual_seed(5), {})
    parts = [
        policy.rollout(
            condition.take(torch.arange(first, last)),
            torch.Generator().manual_seed(5),
            {"rows": (first, last, 3)},
        )
        for first, last in ((0, 2), (2, 3))
    ]
    assert torch.equal(whole.x_0, torch.cat([p.x_0 for p in parts]))


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_log_probs_follow_the_rule_that_drew(model: Path, guidance: float) -> None:
    policy = make_policy(model, guidance=guidance)
    condition = policy.encode(PROMPTS)
    tokens = torch.randint(4, (3, 16), generator=torch.Generator().manual_seed(0))
    masks = torch.rand(3, 16, generator=torch.Generator().manual_seed(1)) < 0.5
    got = policy.log_probs(tokens, masks, condition, who="old")
    law = policy.distribution(tokens.masked_fill(masks, 4), condition, who="old")
    assert torch.allclose(law.exp().sum(-1), torch.ones(3, 16), atol=1e-5)
    assert torch.allclose(got, law.gather(-1, tokens[..., None])[..., 0])
    if guidance != 1.0:
        plain = make_policy(model).log_probs(tokens, masks, condition, who="old")
        assert not torch.allclose(got, plain, atol=1e-3)


def test_only_new_has_a_graph_and_reference_stays(model: Path) -> None:
    policy = make_policy(model)
    condition, tokens = policy.encode(PROMPTS), torch.zeros(3, 16, dtype=torch.long)
    masks = torch.ones(3, 16, dtype=torch.bool)

    def values(who: str) -> torch.Tensor:
        return policy.log_probs(tokens, masks, condition, who=who)  # type: ignore[arg-type]

    base = values("reference")
    assert policy.on_policy
    assert torch.equal(values("new"), base)  # B starts at 0
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.1)
    assert not policy.on_policy
    assert values("new").requires_grad
    assert not values("old").requires_grad
    assert torch.equal(values("reference"), base)
    assert torch.equal(values("old"), base)
    policy.update_old(0.0)
    assert torch.equal(values("old"), values("new"))


def test_completion_keeps_what_is_seen(model: Path) -> None:
    policy = make_policy(model)
    condition = policy.encode(PROMPTS)
    x_0 = torch.randint(4, (3, 16), generator=torch.Generator().manual_seed(0))
    x_t = policy.noised(x_0, 2, torch.randn(3, 16, generator=torch.Generator().manual_seed(1)))
    assert ((x_t == policy.mask_id).sum(1) == int(policy.counts[2])).all()
    seen = x_t != policy.mask_id
    done = policy.complete(x_t, 2, condition, torch.Generator().manual_seed(2))
    guess = policy.estimate(x_t, policy.sigmas[2].expand(3), condition)
    for filled in (done, guess):
        assert torch.equal(filled[seen], x_0[seen])
        assert int(filled.max()) < policy.mask_id
    assert policy.features(done).shape[0] == 3


def test_adapters_are_plain_peft(model: Path, tmp_path: Path) -> None:
    from diffusers import UVit2DModel

    policy = make_policy(model)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.1)
    policy.save_adapter(tmp_path)
    fresh = UVit2DModel.from_pretrained(model, subfolder="transformer")
    name = "pytorch_lora_weights.safetensors"
    fresh.load_lora_adapter(str(tmp_path), weight_name=name, prefix="transformer")
    condition = policy.encode(PROMPTS)
    state = torch.full((3, 16), 4)
    want = policy.distribution(state, condition, who="new")
    with torch.no_grad():
        logits = fresh(
            input_ids=state.view(3, 4, 4),
            encoder_hidden_states=condition.tensors["embeds"],
            pooled_text_emb=condition.tensors["pooled"],
            micro_conds=torch.tensor([64.0, 64.0, 0.0, 0.0, 6.0]).expand(3, -1),
        )
    got = torch.log_softmax(logits.flatten(2).mT, -1)
    assert torch.allclose(got, want, atol=1e-5)


def test_the_vq_path_of_amused_decodes(tmp_path: Path) -> None:
    policy = make_policy(write_model(tmp_path / "vq", codebook=32, vq=True))
    rollout = policy.rollout(policy.encode(PROMPTS), torch.Generator().manual_seed(0), {})
    images = policy.decode(rollout.x_0)
    assert images.shape == (3, 8, 8, 3)
    assert images.dtype == np.uint8
    assert images.std() > 0


def test_what_is_no_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.base"):
        make_policy(tmp_path / "nothing")
    broken = write_model(tmp_path / "broken")
    (broken / "palette.json").write_text('{"cell": 0}', encoding="utf-8")
    with pytest.raises(Exception, match="palette"):
        make_policy(broken)


def test_no_more_steps_than_tokens(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    with pytest.raises(ConfigError, match=r"sampler.steps: .* 16 tokens"):
        make_policy(folder, steps=17)
    assert bool((make_policy(folder, steps=16).sigmas.diff() < 0).all())


def test_an_unknown_masking_schedule_is_named_with_the_model(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    AmusedScheduler(mask_token_id=4, masking_schedule="sigmoid").save_pretrained(
        folder / "scheduler"
    )
    with pytest.raises(
        ConfigError, match=r"model: masking_schedule: kind must be one of .*sigmoid"
    ):
        make_policy(folder)
