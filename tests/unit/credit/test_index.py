"""The likeliest bug of all: a gain at a destination must weigh the loss at the step's source."""

from typing import Any

import numpy as np
import pytest
import torch

from recast_train.credit import gains, solve_weights, static_weights, step_advantages
from recast_train.methods import METHODS
from recast_train.policies.base import PolicySetup
from recast_train.policies.sd3.config import LoraBlock, Sd3Config
from recast_train.policies.sd3.policy import Sd3Policy
from recast_train.update import accumulate
from tests.support.tiny_sd3 import tiny_sd3

STEPS, SPIKE = 5, 1
BUDGETS = np.array([0.5, 0.5])


@pytest.fixture(scope="module")
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


class Wrapped:
    """Everything is the inner object's, but for what a subclass listens to."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class SeenPolicy(Wrapped):
    """Remembers the noise levels of the last forward that is trained."""

    levels: list[float]

    def velocity(self, x_t: Any, sigma: Any, condition: Any, *, who: Any) -> Any:
        if who == "new":
            self.levels = sigma.tolist()
        return self.inner.velocity(x_t, sigma, condition, who=who)


class SeenMethod(Wrapped):
    """Remembers the advantages at each noise level."""

    def __init__(self, inner: Any, policy: SeenPolicy) -> None:
        super().__init__(inner)
        self.policy = policy
        self.seen: dict[float, list[float]] = {}

    def loss(self, outputs: Any, advantage: Any) -> Any:
        for sigma, value in zip(self.policy.levels, advantage.tolist(), strict=True):
            self.seen.setdefault(round(sigma, 5), []).append(abs(value))
        return self.inner.loss(outputs, advantage)


@pytest.mark.parametrize("name", ["nft", "flow-grpo"])
def test_a_gain_at_one_step_weighs_the_loss_at_its_source(policy: Any, name: str) -> None:
    # D rises between sigma_1 and sigma_2 for reward 0, evenly for reward 1
    curves = np.stack(
        [np.where(np.arange(STEPS + 1) > SPIKE, 1.0, 0.0), np.linspace(0, 1, STEPS + 1)]
    )
    w = solve_weights(gains(curves), BUDGETS)
    assert w[0].argmax() == SPIKE
    rng = np.random.default_rng(0)
    rewards, groups = rng.standard_normal((2, 8)), np.repeat([0, 1], 4)
    rewards[1] = -rewards[0]  # static credit then cancels: what is left is the credit's doing
    np.testing.assert_allclose(
        step_advantages(rewards, groups, static_weights(BUDGETS, STEPS), budgets=BUDGETS), 0.0
    )
    advantages = torch.from_numpy(step_advantages(rewards, groups, w)).float()

    policy, method = SeenPolicy(policy), METHODS.load(name).build(METHODS.load(name).config())
    listener = SeenMethod(method, policy)
    generator = torch.Generator().manual_seed(0)
    plan = {**method.rollout_plan, "epoch": 0, "group_size": 4}
    rollout = policy.rollout(policy.encode(["red card"] * 4 + ["blue card"] * 4), generator, plan)
    accumulate(listener, policy, rollout, method.works(rollout, STEPS, 4, generator), advantages)
    seen = listener.seen

    loudest = max(seen, key=lambda sigma: float(np.mean(seen[sigma])))
    assert loudest == pytest.approx(policy.sigmas[SPIKE].item(), abs=1e-4)
    others = [np.mean(v) for sigma, v in seen.items() if sigma != loudest]
    assert np.mean(seen[loudest]) > 2 * max(others)
