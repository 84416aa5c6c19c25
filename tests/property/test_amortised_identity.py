"""MARBLE's Proposition 1: a gradient of K losses is one gradient at a mixed advantage."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from recast_train.gradients import mixture
from recast_train.losses import nft_loss, policy_gradient_loss
from recast_train.methods.nft import optimality

A_MAX = 5.0


def _scene(seed: int, off_policy: float) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    old, target = draw(2, 6, 3, 2, 2)
    new = (old + off_policy * draw(6, 3, 2, 2)).requires_grad_()
    sigma = 0.05 + 0.95 * torch.rand(6, generator=generator, dtype=torch.float64)
    return new, old, target, sigma


def _gradient(scene: tuple[Tensor, ...], advantage: Tensor, adaptive: bool) -> Tensor:
    new, old, target, sigma = scene
    good = optimality(advantage, A_MAX)
    loss = nft_loss(new, old, target, good, beta=0.3, sigma=sigma if adaptive else None).loss
    (found,) = torch.autograd.grad(loss, new)
    return found


SCENES = st.tuples(st.integers(0, 2**31), st.sampled_from([0.0, 0.01, 1.0]))


@given(SCENES, st.integers(1, 6), st.booleans(), st.floats(0.2, 5.0))
def test_affine_identity(
    scene: tuple[int, float], count: int, adaptive: bool, total: float
) -> None:
    values = _scene(*scene)
    draw = np.random.default_rng(scene[0])
    # Any weights, also negative ones and ones that do not sum to 1, as PCGrad's and CAGrad's.
    weights = draw.normal(size=count)
    assume(abs(weights.sum()) > 0.1)
    weights *= total / weights.sum()
    shares, scale = mixture(weights)
    assert scale == pytest.approx(total)
    advantages = torch.from_numpy(draw.uniform(-1, 1, size=(count, 6)))
    mixed = torch.einsum("k,kn->n", torch.from_numpy(shares), advantages)
    assume(float(mixed.abs().max()) < A_MAX)  # a cut advantage is not affine
    each = [_gradient(values, row, adaptive) for row in advantages]
    expected = torch.stack([w * g for w, g in zip(weights, each, strict=True)]).sum(dim=0)
    got = scale * _gradient(values, mixed, adaptive)
    size = float(torch.stack(each).abs().max()) * np.abs(weights).sum()
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10 * max(size, 1e-300))


@given(SCENES, st.booleans())
def test_one_hot_is_that_reward(scene: tuple[int, float], adaptive: bool) -> None:
    values = _scene(*scene)
    advantages = torch.from_numpy(np.random.default_rng(scene[0]).normal(size=(3, 6)))
    shares = torch.from_numpy(mixture([0.0, 1.0, 0.0]).shares)
    mixed = torch.einsum("k,kn->n", shares, advantages)
    assert torch.equal(
        _gradient(values, mixed, adaptive), _gradient(values, advantages[1], adaptive)
    )


@given(st.integers(0, 2**31))
def test_a_cut_advantage_breaks_it(seed: int) -> None:
    values = _scene(seed, 1.0)
    high, low = torch.full((6,), 2 * A_MAX).double(), torch.full((6,), -A_MAX).double()
    expected = (_gradient(values, high, False) + _gradient(values, low, False)) / 2
    assert not torch.allclose(_gradient(values, (high + low) / 2, False), expected)


@given(st.integers(0, 2**31))
def test_constant_reward_on_policy_has_no_gradient(seed: int) -> None:
    # At v_new = v_old the two branches pull with equal force: 2 b (2r - 1)(v_old - v) = 0.
    values = _scene(seed, 0.0)
    for adaptive in (False, True):
        assert not _gradient(values, torch.zeros(6).double(), adaptive).any()
    # Off-policy it is the pull to the old policy, the same for every reward without signal.
    assert _gradient(_scene(seed, 0.5), torch.zeros(6).double(), False).any()


@given(st.integers(0, 2**31))
def test_policy_gradient_is_affine_on_policy(seed: int) -> None:
    draw = np.random.default_rng(seed)
    log_prob = torch.from_numpy(draw.normal(size=6)).requires_grad_()
    advantages = torch.from_numpy(draw.normal(size=(3, 6)))
    shares = torch.from_numpy(draw.dirichlet(np.ones(3)))

    def gradient(advantage: Tensor) -> Tensor:
        loss = policy_gradient_loss(log_prob, log_prob.detach(), advantage, clip=1e-4).loss
        (found,) = torch.autograd.grad(loss, log_prob)
        return found

    expected = torch.einsum("k,kn->n", shares, torch.stack([gradient(a) for a in advantages]))
    torch.testing.assert_close(gradient(shares @ advantages), expected, rtol=0, atol=1e-12)
