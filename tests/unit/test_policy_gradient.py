"""The clipped surrogate and AWM's likelihood: closed forms and gradients."""

import pytest
import torch

from recast_train.losses.awm import matching_log_prob
from recast_train.losses.policy_gradient import policy_gradient_loss


def test_first_step_is_on_policy() -> None:
    log_prob = torch.tensor([-1.3, 0.2, -7.0], requires_grad=True)
    advantage = torch.tensor([1.0, -2.0, 0.5])
    got = policy_gradient_loss(log_prob, log_prob.detach(), advantage, clip=1e-5)
    assert got.ratio_mean.item() == 1.0
    assert got.clip_fraction.item() == 0.0
    assert got.loss.item() == pytest.approx(-advantage.mean().item())
    got.loss.backward()
    torch.testing.assert_close(log_prob.grad, -advantage / 3)


def test_surrogate_by_hand() -> None:
    # r = 2, 1/2, 2, 1/2 and A = 1, 1, -1, -1 with clip .2:
    # max(-2, -1.2), max(-.5, -.8), max(2, 1.2), max(.5, .8) = -1.2, -.5, 2, .8
    ratio = torch.tensor([2.0, 0.5, 2.0, 0.5]).log().requires_grad_()
    advantage = torch.tensor([1.0, 1.0, -1.0, -1.0])
    got = policy_gradient_loss(ratio, torch.zeros(4), advantage, clip=0.2)
    assert got.loss.item() == pytest.approx((-1.2 - 0.5 + 2 + 0.8) / 4)
    assert got.clip_fraction.item() == 1.0
    assert got.ratio_mean.item() == pytest.approx(1.25)
    got.loss.backward()
    # Where the clipped branch wins, nothing pulls further.
    torch.testing.assert_close(ratio.grad, torch.tensor([0.0, -0.5, 2.0, 0.0]) / 4)


def test_advantage_may_be_one_a_sample() -> None:
    log_prob, old = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)).unbind()
    advantage = torch.tensor([1.0, 0.0, -1.0])
    one = policy_gradient_loss(log_prob, old, advantage, clip=0.1)
    all_steps = policy_gradient_loss(log_prob, old, advantage[:, None].expand(3, 4), clip=0.1)
    assert one == all_steps


def test_zero_advantage_has_no_gradient() -> None:
    log_prob = torch.tensor([0.3, -0.1], requires_grad=True)
    policy_gradient_loss(log_prob, torch.zeros(2), torch.zeros(2), clip=0.1).loss.backward()
    assert log_prob.grad is not None
    assert not log_prob.grad.any()


def test_half_precision_is_widened() -> None:
    half = torch.tensor([-1.0, -2.0], dtype=torch.bfloat16)
    got = policy_gradient_loss(half, half, torch.ones(2, dtype=torch.bfloat16), clip=1e-4)
    assert got.loss.dtype == torch.float32


@pytest.mark.parametrize(
    ("shapes", "clip", "law"),
    [
        (((2,), (2,), (2,)), 0.0, "clip"),
        (((2,), (3,), (2,)), 0.1, "share one"),
        (((0,), (0,), (0,)), 0.1, "non-empty"),
        (((2, 3), (2, 3), (3,)), 0.1, "must lead"),
    ],
)
def test_malformed(shapes: tuple[tuple[int, ...], ...], clip: float, law: str) -> None:
    with pytest.raises(ValueError, match=law):
        policy_gradient_loss(*(torch.zeros(s) for s in shapes), clip=clip)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("uniform", -4.0),
        ("t", -2.0),
        ("t2", -1.0),
        ("huber", -0.5 * (2.0 - 0.0)),
        ("ghuber", -(0.5 / 0.25) * 4.0**0.25),
    ],
)
def test_matching_log_prob(kind: str, expected: float) -> None:
    # An error of 2 in every latent dimension at t = 1/2: l = 4. The floor is too small to show,
    # but for ghuber, where floor^(2p) = floor^(1/2).
    got = matching_log_prob(
        torch.full((1, 3, 2), 3.0), torch.ones(1, 3, 2), torch.tensor([0.5]), kind=kind, floor=1e-12
    )
    assert got.item() == pytest.approx(expected, rel=2e-6)


def test_power_one_is_the_weighted_error() -> None:
    generator = torch.Generator().manual_seed(0)
    velocity, target = torch.randn(2, 5, 7, generator=generator).unbind()
    sigma = torch.linspace(0.1, 1, 5)
    torch.testing.assert_close(
        matching_log_prob(velocity, target, sigma, kind="ghuber", power=1.0),
        matching_log_prob(velocity, target, sigma, kind="t"),
    )


@pytest.mark.parametrize("kind", ["uniform", "t", "t2", "huber", "ghuber"])
def test_a_perfect_velocity_is_zero_with_a_finite_gradient(kind: str) -> None:
    velocity = torch.zeros(2, 3, requires_grad=True)
    got = matching_log_prob(velocity, torch.zeros(2, 3), torch.ones(2), kind=kind)
    got.sum().backward()
    torch.testing.assert_close(got, torch.zeros(2), rtol=0, atol=1e-10)
    assert velocity.grad is not None
    assert torch.isfinite(velocity.grad).all()


def test_awm_switches() -> None:
    one = torch.ones(1, 1)
    with pytest.raises(ValueError, match="power"):
        matching_log_prob(one, one, torch.ones(1), power=0.0)
