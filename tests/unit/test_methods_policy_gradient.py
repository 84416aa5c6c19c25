"""The policy-gradient methods and AWM on a real, tiny SD3."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from recast_train.credit.apply import normalise
from recast_train.loop import compared
from recast_train.methods import METHODS
from recast_train.methods._policy_gradient import WindowConfig
from recast_train.methods.base import Work
from recast_train.methods.nft import NftConfig
from recast_train.policies.base import Condition, PolicySetup, Rollout
from recast_train.policies.sd3.config import LoraBlock, Sd3Config
from recast_train.policies.sd3.policy import Sd3Policy
from recast_train.sde import (
    VISIBLE,
    Step,
    euler_step,
    mean_log_prob,
    noise_aware_weights,
    sde_step,
    step_stds,
)
from tests.support.tiny_sd3 import tiny_sd3

FAMILY = ("flow-grpo", "flow-grpo-fast", "mix-grpo", "grpo-guard", "tempflow")
STEPS = 6
PROMPTS = ("red card", "blue card") * 4


@pytest.fixture
def policy() -> Sd3Policy:
    setup = PolicySetup(
        steps=STEPS,
        guidance_scale=1.0,
        solver="euler",
        shift=None,
        rollout_batch=0,
        precision="fp32",
        device="cpu",
        seed=0,
    )
    return Sd3Policy(tiny_sd3(), Sd3Config(lora=LoraBlock(rank=2)), setup)


def _method(name: str, **switches: Any) -> Any:
    spec = METHODS.load(name)
    assert spec.name == name
    config = spec.config(**switches)
    assert not list(config.problems())
    return spec.build(config)


def _rollout(policy: Sd3Policy, method: Any, epoch: int = 0, **plan: Any) -> Rollout:
    plan = {**method.rollout_plan, "epoch": epoch, "group_size": 4, **plan}
    generator = torch.Generator().manual_seed(1)
    return policy.rollout(policy.encode(PROMPTS), generator, plan)


def _works(method: Any, rollout: Rollout, micro_batch: int = 3) -> list[Work]:
    generator = torch.Generator().manual_seed(2)
    return list(method.works(rollout, STEPS, micro_batch, generator))


def _move(policy: Sd3Policy) -> None:
    """Make the trained policy differ from the drawing one."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    assert not policy.on_policy


@pytest.mark.parametrize("name", FAMILY)
def test_first_on_policy_step_has_ratio_one(policy: Sd3Policy, name: str) -> None:
    method = _method(name)
    rollout = _rollout(policy, method)
    for work in _works(method, rollout):
        outputs = method.outputs(policy, rollout, work)
        found = method.loss(outputs, torch.ones(len(work.rows)))
        assert found.logs["ratio_mean"].item() == 1.0
        assert found.logs["clip_fraction"].item() == 0.0
        assert torch.isfinite(found.loss)


@pytest.mark.parametrize("name", FAMILY)
def test_ratio_is_one_with_recomputed_old_densities(policy: Sd3Policy, name: str) -> None:
    _move(policy)
    policy.update_old(0.0)
    method = _method(name)
    rollout = _rollout(policy, method)
    work = _works(method, rollout)[0]
    for parameter in policy.parameters():
        parameter.data = parameter.data.clone()  # a new tensor: the equality is looked up again
    outputs = method.outputs(policy, rollout, work)
    assert method.loss(outputs, torch.ones(len(work.rows))).logs["ratio_mean"].item() == 1.0


@pytest.mark.parametrize("name", FAMILY)
def test_work_is_every_stochastic_step_once(policy: Sd3Policy, name: str) -> None:
    method = _method(name)
    rollout = _rollout(policy, method)
    works = _works(method, rollout)
    assert sum(w.weight for w in works) == pytest.approx(1.0)
    pairs = [(r, s) for w in works for r, s in zip(w.rows.tolist(), w.steps.tolist(), strict=True)]
    assert len(set(pairs)) == len(pairs)
    noisy = {(r, s) for r, s in (rollout.trace["stds"] > 0).nonzero().tolist()}
    if method.config.window.kind == "all":
        noisy = {(r, s) for r, s in noisy if s < STEPS - 1}
    assert set(pairs) == noisy


def test_windows_of_the_family(policy: Sd3Policy) -> None:
    def noisy(name: str, epoch: int = 0) -> list[list[int]]:
        trace = _rollout(policy, _method(name), epoch).trace
        return [row.nonzero().flatten().tolist() for row in trace["stds"] > 0]

    assert noisy("flow-grpo") == [list(range(STEPS))] * 8
    assert noisy("flow-grpo-fast") == [[0, 1, 2]] * 8  # three steps fill the noisier half
    assert noisy("mix-grpo") == [[0, 1, 2, 3]] * 8
    assert noisy("mix-grpo", epoch=30) == [[1, 2, 3, 4]] * 8
    # The last step's noise cannot be seen: no window moves there.
    assert noisy("mix-grpo", epoch=999) == [[1, 2, 3, 4]] * 8
    branches = noisy("tempflow")
    assert all(len(row) == 1 for row in branches)
    assert branches[0] == branches[5] != branches[6] == branches[7]


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("solver", ["sde", "cps"])
def test_only_steps_whose_noise_shows_are_trained(
    policy: Sd3Policy, name: str, solver: Literal["sde", "cps"]
) -> None:
    window = WindowConfig(kind="sliding", size=1)
    for method in (_method(name, solver=solver), _method(name, solver=solver, window=window)):
        stds = step_stds(policy.sigmas, solver=solver, noise_level=method.config.noise_level)
        for epoch in (0, 999):  # a sliding window is at its end by then
            works = _works(method, _rollout(policy, method, epoch))
            assert sum(w.weight for w in works) == pytest.approx(1.0)
            assert all((stds[w.steps] > VISIBLE * stds.max()).all() for w in works)


def test_the_kl_of_cps_does_not_outweigh_its_surrogate_anywhere(policy: Sd3Policy) -> None:
    method = _method("flow-grpo", solver="cps", kl=1.0)
    _move(policy)
    rollout = _rollout(policy, method)
    shares = []
    for work in _works(method, rollout, micro_batch=8):
        outputs = method.outputs(policy, rollout, work)
        surrogate = method.loss(outputs, torch.randn(8, generator=torch.Generator().manual_seed(5)))
        pull = _gradient(policy, method.penalty(outputs).loss).norm()
        shares.append(float(pull / _gradient(policy, surrogate.loss).norm()))
    assert max(shares) / min(shares) < 100.0


def test_rewards_are_compared_where_the_same_steps_were_explored(policy: Sd3Policy) -> None:
    groups = torch.arange(2).repeat_interleave(4)
    window = WindowConfig(kind="branch", size=1, high=0.9, branches=2)
    rollout = _rollout(policy, _method("tempflow", window=window))
    labels = compared(rollout, groups).tolist()
    # Pairs explored a step each; a pair that shares its step with another of its prompt joins it.
    steps = (rollout.trace["stds"] > 0).int().argmax(dim=1).tolist()
    expected = list(zip(groups.tolist(), steps, strict=True))
    assert len(set(steps)) > 1
    assert [labels.index(label) for label in labels] == [expected.index(key) for key in expected]
    for name in set(FAMILY) - {"tempflow"}:
        assert torch.equal(compared(_rollout(policy, _method(name)), groups), groups)
    assert compared(_rollout(policy, METHODS.load("nft").build(NftConfig())), groups) is groups


def test_a_noisy_step_is_no_advantage() -> None:
    # Noise costs the second step's samples one point each: nothing that any of them did better.
    stds = torch.eye(2).repeat_interleave(2, dim=0)
    rollout = Rollout(torch.zeros(4, 1), Condition({}), {"stds": stds})
    rewards = np.array([[1.0, 0.5, 0.0, -0.5]])
    groups = compared(rollout, torch.zeros(4, dtype=torch.long))
    found = normalise(rewards, groups.numpy())
    np.testing.assert_allclose(found, [[1.0, -1.0, 1.0, -1.0]])


def test_a_group_may_share_its_initial_noise(policy: Sd3Policy) -> None:
    states = _rollout(policy, _method("mix-grpo")).trace["states"]
    assert all(torch.equal(states[0, 0], states[i, 0]) for i in range(4))
    assert not torch.equal(states[0, 0], states[4, 0])
    states = _rollout(policy, _method("flow-grpo")).trace["states"]
    assert not torch.equal(states[0, 0], states[1, 0])


@pytest.mark.parametrize("name", FAMILY)
def test_two_processes_draw_what_one_does(policy: Sd3Policy, name: str) -> None:
    method = _method(name)
    whole = _rollout(policy, method)
    condition = policy.encode(PROMPTS)
    for first, last in ((0, 3), (3, 8)):
        plan = {**method.rollout_plan, "epoch": 0, "group_size": 4, "rows": (first, last, 8)}
        part = policy.rollout(
            condition.take(torch.arange(first, last)), torch.Generator().manual_seed(1), plan
        )
        # Rows of one forward do not depend on the others, but for the order of sums.
        torch.testing.assert_close(part.x_0, whole.x_0[first:last], rtol=1e-4, atol=1e-5)
        assert torch.equal(part.trace["stds"], whole.trace["stds"][first:last])


def test_trace_is_what_the_sampler_did(policy: Sd3Policy) -> None:
    trace = _rollout(policy, _method("tempflow")).trace
    condition, level = policy.encode(PROMPTS), 0.7
    for j in range(STEPS):
        sigma, sigma_next = (policy.sigmas[i].expand(8) for i in (j, j + 1))
        x_t = trace["states"][:, j]
        v = policy.velocity(x_t, sigma, condition, who="old")
        noisy = trace["stds"][:, j] > 0
        euler = euler_step(x_t, v, sigma, sigma_next)
        torch.testing.assert_close(trace["states"][~noisy, j + 1], euler[~noisy])
        step = sde_step(
            x_t, v, sigma, sigma_next, noise_level=level, sigma_max=float(policy.sigmas[1])
        )
        torch.testing.assert_close(trace["means"][noisy, j], step.mean[noisy])
        logs = mean_log_prob(trace["states"][:, j + 1], step)
        torch.testing.assert_close(trace["log_probs"][noisy, j], logs[noisy])
    assert torch.isfinite(trace["log_probs"]).all()


def _gradient(policy: Sd3Policy, loss: Tensor) -> Tensor:
    found = torch.autograd.grad(loss, policy.parameters(), allow_unused=True, retain_graph=True)
    pairs = zip(found, policy.parameters(), strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs])


def test_on_policy_gradient_is_that_of_log_prob(policy: Sd3Policy) -> None:
    method = _method("flow-grpo", kl=0.0)
    rollout = _rollout(policy, method)
    work = _works(method, rollout)[1]
    advantage = torch.tensor([1.0, -2.0, 0.5])
    outputs = method.outputs(policy, rollout, work)
    got = _gradient(policy, method.loss(outputs, advantage).loss)
    expected = _gradient(policy, -(advantage * outputs.tensors["log_prob"]).mean())
    assert expected.any()
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", ["flow-grpo", "grpo-guard", "awm"])
def test_credit_of_a_step_acts_at_its_source(policy: Sd3Policy, name: str) -> None:
    method = _method(name, kl=0.0)
    rollout = _rollout(policy, method)
    works = _works(method, rollout, micro_batch=8)
    credited = 2
    advantages = torch.zeros(STEPS, 8)
    advantages[credited] = torch.arange(8) - 3.0

    def total(only: bool) -> Tensor:
        found = []
        for work in works:
            there = work.steps == credited
            if only and not there.any():
                continue
            item = Work(work.rows[there], work.steps[there], _rows(work, there)) if only else work
            weight = work.weight * (float(there.float().mean()) if only else 1.0)
            outputs = method.outputs(policy, rollout, item)
            if only:
                sigma = outputs.tensors.get("sigma", policy.sigmas[item.steps])
                assert (sigma == policy.sigmas[credited]).all()
            loss = method.loss(outputs, advantages[item.steps, item.rows]).loss * weight
            found.append(_gradient(policy, loss))
        return torch.stack(found).sum(dim=0)

    expected = total(only=True)
    assert expected.any()
    torch.testing.assert_close(total(only=False), expected, rtol=1e-3, atol=1e-8)


def _rows(work: Work, there: Tensor) -> Tensor | None:
    return None if work.noise is None else work.noise[there]


@pytest.mark.parametrize("name", FAMILY)
def test_stored_and_recomputed_densities_agree(policy: Sd3Policy, name: str) -> None:
    stored, fresh = (_method(name, old_density=kind) for kind in ("stored", "recomputed"))
    rollout = _rollout(policy, stored)
    _move(policy)
    work = _works(stored, rollout)[0]
    one, two = (m.outputs(policy, rollout, work).tensors for m in (stored, fresh))
    for key in ("old_mean", "old_log_prob"):
        torch.testing.assert_close(one[key], two[key], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("grpo-guard", lambda sigmas: 1 / sigmas.diff().abs()),
        (
            "tempflow",
            lambda sigmas: noise_aware_weights(
                step_stds(sigmas, solver="sde", noise_level=0.7), 0, int(0.9 * STEPS)
            ),
        ),
    ],
)
def test_step_weights(policy: Sd3Policy, name: str, factor: Callable[[Tensor], Tensor]) -> None:
    weighted, plain = _method(name), _method(name, step_weight="none")
    rollout = _rollout(policy, weighted)
    for work in _works(weighted, rollout, micro_batch=1):
        one, two = (
            m.loss(m.outputs(policy, rollout, work), torch.ones(1)).loss for m in (weighted, plain)
        )
        torch.testing.assert_close(one, two * factor(policy.sigmas)[work.steps[0]])


def test_guard_ratio_is_centred(policy: Sd3Policy) -> None:
    guard = _method("grpo-guard", step_weight="none", clip=10.0)
    rollout = _rollout(policy, guard)
    _move(policy)
    for work in _works(guard, rollout):
        found = guard.outputs(policy, rollout, work).tensors
        old = Step(found["old_mean"], found["std"])
        squares = (found["mean"] - old.mean).square().flatten(1).mean(1)
        raw = found["log_prob"] - found["old_log_prob"]
        published = found["std"] * (raw + squares / (2 * found["std"].square()))
        ratio = guard.loss(guard.outputs(policy, rollout, work), torch.ones(len(work.rows)))
        # The published form subtracts log-densities near 1: its digits end at 1e-6.
        torch.testing.assert_close(
            ratio.logs["ratio_mean"], published.exp().mean(), rtol=1e-5, atol=0
        )


def test_kl_has_the_step_length_in_it(policy: Sd3Policy) -> None:
    method = _method("flow-grpo", kl=1.0)
    rollout = _rollout(policy, method)
    _move(policy)
    work = _works(method, rollout)[0]
    found = method.outputs(policy, rollout, work).tensors
    squares = (found["mean"] - found["reference_mean"]).square().flatten(1).mean(1)
    sigma, dt = policy.sigmas[work.steps], found["dt"].abs()
    room = 1 - torch.where(sigma == 1, policy.sigmas[1], sigma)
    diffusion = 0.7 * (sigma / room).sqrt()
    got = method.penalty(method.outputs(policy, rollout, work)).loss
    torch.testing.assert_close(got, (squares / (2 * diffusion.square() * dt)).mean())
    assert _method("flow-grpo", kl=0.0).penalty(method.outputs(policy, rollout, work)).loss == 0


def test_no_reference_forward_without_kl(policy: Sd3Policy) -> None:
    for name in ("flow-grpo-fast", "awm"):
        method = _method(name, kl=0.0)
        rollout = _rollout(policy, method)
        outputs = method.outputs(policy, rollout, _works(method, rollout)[0])
        assert not {"reference", "reference_mean"} & set(outputs.tensors)


@pytest.mark.parametrize("name", [*FAMILY, "awm"])
def test_constant_reward_gives_finite_zero(policy: Sd3Policy, name: str) -> None:
    method = _method(name, kl=0.0)
    rollout = _rollout(policy, method)
    outputs = method.outputs(policy, rollout, _works(method, rollout)[0])
    gradient = _gradient(policy, method.loss(outputs, torch.zeros(3)).loss)
    assert not gradient.any()


def test_awm_on_policy_gradient_is_weighted_matching(policy: Sd3Policy) -> None:
    method = _method("awm", likelihood="uniform", kl=0.0)
    rollout = _rollout(policy, method)
    work = _works(method, rollout)[0]
    advantage = torch.tensor([5.0, -9.0, 2.5])  # cut to +-5, then divided by 5
    outputs = method.outputs(policy, rollout, work)
    found = outputs.tensors
    got = _gradient(policy, method.loss(outputs, advantage).loss)
    error = (found["new"] - found["target"]).square().flatten(1).mean(1)
    expected = _gradient(policy, (torch.tensor([1.0, -1.0, 0.5]) * error).mean())
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-9)


def test_awm_strata(policy: Sd3Policy) -> None:
    method = _method("awm", train_steps=3, stratum_share=1.0)
    rollout = _rollout(policy, method)
    steps = torch.zeros(8, 3, dtype=torch.long)
    for index, work in enumerate(_works(method, rollout, micro_batch=8)):
        steps[work.rows, index] = work.steps
    # Steps 1 .. 5 in three strata of 5/3: the first is never drawn, order is kept.
    assert (steps >= torch.tensor([1, 2, 4])).all()
    assert (steps <= torch.tensor([2, 4, 5])).all()
    assert sum(w.weight for w in _works(method, rollout)) == pytest.approx(1.0)


def test_awm_pulls_to_the_drawing_policy(policy: Sd3Policy) -> None:
    method = _method("awm", kl_old=2.0, kl=0.0)
    rollout = _rollout(policy, method)
    work = _works(method, rollout)[0]
    assert method.penalty(method.outputs(policy, rollout, work)).loss == 0
    _move(policy)
    outputs = method.outputs(policy, rollout, work)
    found = outputs.tensors
    expected = 2 * (found["new"] - found["old"]).square().mean()
    torch.testing.assert_close(method.penalty(outputs).loss, expected)
    assert [method.old_decay(s, 0) for s in (0, 100, 10_000)] == [0.0, 0.1, 0.3]


@pytest.mark.parametrize(
    ("name", "switches", "key"),
    [
        ("flow-grpo", {"noise_level": 0.0}, "noise_level"),
        ("flow-grpo-fast", {"noise_level": 1.5}, "cps"),
        ("flow-grpo", {"clip": 0.0}, "clip"),
        ("flow-grpo", {"kl": -1.0}, "kl"),
        ("flow-grpo", {"timestep_fraction": 0.0}, "timestep_fraction"),
        ("awm", {"power": 2.0}, "power"),
        ("awm", {"decay_ceiling": 1.0}, "decay_ceiling"),
        ("awm", {"train_steps": 0}, "train_steps"),
    ],
)
def test_switches_out_of_range(name: str, switches: dict[str, float], key: str) -> None:
    assert key in next(METHODS.load(name).config(**switches).problems())
