"""The method file: works, loss and penalty on a tiny random policy."""

from typing import Any

import numpy as np
import pytest
import torch

from recast_train.credit import solve_weights
from recast_train.methods.rebrl import METHOD, Rebrl, RebrlConfig
from recast_train.policies.base import Rollout
from recast_train.policies.masked.policy import MaskedPolicy
from recast_train.rebrl import (
    PRESETS,
    credit_weights,
    estimator_weights,
    stage_masks,
    stage_mix,
    token_credit,
)
from tests.support.masked_models import make_policy, write_model

pytestmark = pytest.mark.filterwarnings("ignore:Already found a `peft_config`:UserWarning")
STEPS, ROWS = 4, 6


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> MaskedPolicy:
    made = make_policy(write_model(tmp_path_factory.mktemp("masked")), steps=STEPS)
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():  # away from the point where ratios are 1 and the KL is flat
        for parameter in made.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return made


@pytest.fixture(scope="module")
def rollout(policy: MaskedPolicy) -> Rollout:
    prompts = ["a red circle", "a blue square"] * (ROWS // 2)
    return policy.rollout(policy.encode(prompts), torch.Generator().manual_seed(0), {})


def _gradient(
    method: Rebrl, policy: MaskedPolicy, rollout: Rollout, advantages: torch.Tensor, micro: int
) -> tuple[torch.Tensor, dict[str, float]]:
    """What the loop does in one optimiser step, written out."""
    for parameter in policy.parameters():
        parameter.grad = None
    logs: dict[str, float] = {}
    generator = torch.Generator().manual_seed(7)
    for work in method.works(rollout, STEPS, micro, generator):
        outputs = method.outputs(policy, rollout, work)
        loss = method.loss(outputs, advantages[work.steps, work.rows])
        penalty = method.penalty(outputs)
        ((loss.loss + penalty.loss) * work.weight).backward()
        for name, value in (loss.logs | penalty.logs).items():
            logs[name] = logs.get(name, 0.0) + work.weight * float(value)
    return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None]), logs


def _static(method: Rebrl, policy: MaskedPolicy) -> np.ndarray:
    mass = method.column_mass(policy.nominal_masks, STEPS)
    return np.array(mass)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_micro_batches_give_the_gradient_of_the_batch(
    name: str, policy: MaskedPolicy, rollout: Rollout
) -> None:
    method = Rebrl(RebrlConfig(preset=name))
    advantages = torch.randn(STEPS, ROWS, generator=torch.Generator().manual_seed(2))
    whole, _ = _gradient(method, policy, rollout, advantages, ROWS)
    parts, _ = _gradient(method, policy, rollout, advantages, 2)
    assert whole.norm() > 0
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", ["unigrpo", "rebrl1", "rebrl-token", "rebrl", "mask-grpo"])
def test_static_credit_gives_the_published_gradient(
    name: str, policy: MaskedPolicy, rollout: Rollout
) -> None:
    """With ``W = budgets x column mass`` the loop's gradient is (1/N) sum a A dlog p."""
    method = Rebrl(RebrlConfig(preset=name, beta=0.0, clip=(9.0, 9.0)))
    each = torch.randn(ROWS, generator=torch.Generator().manual_seed(2))
    mass = torch.from_numpy(_static(method, policy)).float()
    got, _ = _gradient(method, policy, rollout, STEPS * mass[:, None] * each[None], ROWS)
    masks = stage_masks(rollout.trace["decode_step"].numpy(), STEPS)
    weights = torch.from_numpy(estimator_weights(masks, PRESETS[name])).float()
    total = torch.zeros(())
    for i in range(STEPS):
        hidden = torch.from_numpy(masks[:, i])
        new = policy.log_probs(rollout.x_0, hidden, rollout.condition, who="new")
        old = policy.log_probs(rollout.x_0, hidden, rollout.condition, who="old")
        gain = torch.where(hidden, (new - old).exp(), 0.0)
        total = total + (weights[:, i] * gain * each[:, None]).sum() / (16 * ROWS)
    want = torch.cat([g.flatten() for g in torch.autograd.grad(-total, policy.parameters())])
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-6)


def test_budgets_are_spent_exactly_with_the_methods_column_mass(policy: MaskedPolicy) -> None:
    gains = np.array([[0.5, 0.3, 0.15, 0.05], [0.05, 0.15, 0.3, 0.5]])
    masks = policy.nominal_masks.numpy()
    weights = credit_weights(masks, stage_power=1, token="inv_freq")
    mass = np.array(Rebrl(RebrlConfig()).column_mass(policy.nominal_masks, STEPS))
    fitted = solve_weights(gains, [0.6, 0.4], column_mass=mass)
    spent = token_credit(stage_mix(fitted, mass), weights)
    np.testing.assert_allclose(spent.mean(1), [0.6, 0.4], atol=1e-9)
    np.testing.assert_allclose(spent.sum(0), 1, atol=1e-9)
    equal = solve_weights(gains, [0.6, 0.4])
    naive = token_credit(stage_mix(equal, np.full(STEPS, 1 / STEPS)), weights).mean(1)
    assert abs(naive - [0.6, 0.4]).max() > 0.02


def test_diagnostics_say_what_the_estimator_does(policy: MaskedPolicy, rollout: Rollout) -> None:
    method = Rebrl(RebrlConfig(preset="unigrpo", normalize="none", stage_norms=True))
    advantages = torch.ones(STEPS, ROWS)
    _, logs = _gradient(method, policy, rollout, advantages, 4)
    weights = [logs[f"rebrl/token_weight_{j:02d}"] for j in range(STEPS)]
    np.testing.assert_allclose(weights, [1, 2.142857, 3.597403, 6.264069], rtol=1e-5)
    credit = [logs[f"rebrl/stage_credit_{j:02d}"] for j in range(STEPS)]
    np.testing.assert_allclose(credit, 1, rtol=1e-5)
    assert all(logs[f"rebrl/gradient_norm_{j:02d}"] > 0 for j in range(STEPS))
    assert 0 <= logs["rebrl/clip_fraction"] <= 1
    assert logs["rebrl/kl"] > 0


def test_full_mask_trains_on_one_stage(policy: MaskedPolicy, rollout: Rollout) -> None:
    method = Rebrl(RebrlConfig(preset="diffu-grpo"))
    works = list(method.works(rollout, STEPS, 8, torch.Generator()))
    assert [w.steps.unique().tolist() for w in works] == [[0]]
    assert method.column_mass(policy.nominal_masks, STEPS) == [1, 0, 0, 0]


def test_drawn_stages_hold_the_expected_weight(rollout: Rollout) -> None:
    config = RebrlConfig(preset="rebrl", stages_per_update=1, sampling="lambda")
    method, generator = Rebrl(config), torch.Generator().manual_seed(0)
    total = np.zeros((ROWS, 16))
    for _ in range(800):
        for work in method.works(rollout, STEPS, ROWS, generator):
            assert work.noise is not None
            np.add.at(total, work.rows.numpy(), work.noise[:, 1].numpy())
    # W_k is 1 in expectation; its deviation is below 2.5 a draw: four standard errors
    np.testing.assert_allclose(total / 800, 1, atol=4 * 2.5 / 800**0.5)


def test_independent_masks_need_no_rollout_order(rollout: Rollout, policy: MaskedPolicy) -> None:
    method = Rebrl(RebrlConfig(preset="maskgrpo"))
    works = list(method.works(rollout, STEPS, ROWS, torch.Generator().manual_seed(0)))
    shares = [float(w.noise[:, 0].mean()) for w in works if w.noise is not None]
    wanted = 0.6 + 0.4 * policy.counts[:-1] / 16
    np.testing.assert_allclose(shares, wanted, atol=0.2)
    before = torch.get_rng_state()
    list(method.works(rollout, STEPS, ROWS, torch.Generator().manual_seed(0)))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("token", "power"), [("none", 0.0), ("none", 1.0), ("inv_freq", 0.0), ("inv_freq", 1.0)]
)
def test_expected_column_mass_of_independent_masks(token: Any, power: float) -> None:
    config = RebrlConfig(preset="maskgrpo", token=token, stage_power=power, min_share=0.0)
    counts = np.array([40, 30, 20, 10, 0])
    masks = torch.from_numpy(np.arange(40)[None] >= (40 - counts[:-1])[:, None])
    mass = Rebrl(config).column_mass(masks, 4)
    drawn = np.random.default_rng(0).random((4000, 4, 40)) < (counts[:-1] / 40)[:, None]
    weights = credit_weights(drawn, stage_power=power, token=token, nested=False)
    credit = weights.mean((0, 2))
    np.testing.assert_allclose(mass, credit / credit.sum(), atol=0.01)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"preset": "grpo"}, "preset"),
        ({"clip": (-0.1, 0.2)}, "clip"),
        ({"beta": -1.0}, "beta"),
        ({"stage_power": -1.0}, "stage_power"),
        ({"preset": "maskgrpo", "token": "exact"}, "exact"),
        ({"preset": "mask-grpo", "masks": "independent"}, "nested"),
    ],
)
def test_bad_switches_are_said(values: dict[str, Any], words: str) -> None:
    assert any(words in problem for problem in RebrlConfig(**values).problems())


def test_a_stage_without_credit_is_never_divided_by(policy: MaskedPolicy, rollout: Rollout) -> None:
    method = Rebrl(RebrlConfig(preset="diffu-grpo"))
    outputs = method.outputs(
        policy, rollout, next(method.works(rollout, STEPS, 8, torch.Generator()))
    )
    outputs.tensors["mass"][0] = 0
    with pytest.raises(ValueError, match="stage 0 was drawn"):
        method.loss(outputs, torch.ones(ROWS))


def test_column_mass_needs_the_policys_masks() -> None:
    with pytest.raises(ValueError, match="masks"):
        METHOD.build(RebrlConfig()).column_mass(None, 4)
