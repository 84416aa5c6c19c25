"""DiffusionNFT's loss: closed forms, the published properties, what is refused."""

import pytest
import torch

from recast_train.losses import nft_loss
from recast_train.methods.nft import DecayConfig, NftConfig, optimality


def test_by_hand() -> None:
    # new 1, old 0, target 2, beta 1/2: v+ = 1/2, v- = -1/2; errors 9/4 and 25/4; r = 1/4.
    new, old, target = (torch.full((1, 2), v, dtype=torch.float64) for v in (1.0, 0.0, 2.0))
    got = nft_loss(new, old, target, torch.tensor([0.25]), beta=0.5)
    assert got.positive == 9 / 4
    assert got.negative == 25 / 4
    assert got.loss == 0.25 * 9 / 4 + 0.75 * 25 / 4


def test_adaptive_by_hand() -> None:
    # sigma 1/2: x0 errors are -sigma (v - target). v+ off by (-3/2, 3/2): squares 9/16 each,
    # over mean |.| = 3/4: 3/4. v- off by (-5/2, 5/2): 25/16 over 5/4 = 5/4.
    new, old = torch.tensor([[1.0, -1.0]]).double(), torch.zeros(1, 2).double()
    target = torch.tensor([[2.0, -2.0]]).double()
    sigma = torch.tensor([0.5])
    got = nft_loss(new, old, target, torch.tensor([1.0]), beta=0.5, sigma=sigma)
    assert float(got.loss) == pytest.approx(0.75, rel=1e-12)
    assert float(got.negative) == pytest.approx(1.25, rel=1e-12)


def test_gradient_is_weighted_regression_plus_a_pull_to_old() -> None:
    g = torch.Generator().manual_seed(0)
    new, old, target = (torch.randn(3, 4, generator=g, dtype=torch.float64) for _ in range(3))
    good, beta = torch.tensor([0.1, 0.5, 0.8], dtype=torch.float64), 0.3
    new.requires_grad_()
    nft_loss(new, old, target, good, beta=beta).loss.backward()
    r = (2 * good - 1)[:, None]
    wanted = 2 * beta * (r * (old - target) + beta * (new.detach() - old)) / new.numel()
    torch.testing.assert_close(new.grad, wanted, rtol=1e-12, atol=1e-15)


def test_stationary_point_is_old_plus_guidance() -> None:
    old, target = (torch.tensor([v], dtype=torch.float64) for v in ([0.3, -1.0], [1.5, 0.5]))
    beta, r = 0.2, 0.9
    best = (old + (2 * r - 1) * (target - old) / beta).requires_grad_()
    nft_loss(best, old, target, torch.tensor([r], dtype=torch.float64), beta=beta).loss.backward()
    assert best.grad is not None
    assert best.grad.abs().max() < 1e-12


@pytest.mark.parametrize("adaptive", [False, True])
def test_no_signal_on_policy_is_no_gradient(adaptive: bool) -> None:
    v = torch.randn(2, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
    sigma = torch.tensor([0.3, 0.9]) if adaptive else None
    half = torch.full((2,), 0.5)
    nft_loss(v, v.detach(), torch.zeros(2, 5), half, beta=0.1, sigma=sigma).loss.backward()
    assert v.grad is not None
    assert v.grad.abs().max() == 0


def test_a_perfect_velocity_has_a_finite_gradient() -> None:
    v = torch.zeros(1, 3, requires_grad=True)
    args = (torch.zeros(1, 3), torch.zeros(1, 3), torch.tensor([1.0]))
    nft_loss(v, *args, beta=1.0, sigma=torch.tensor([0.5])).loss.backward()
    assert v.grad is not None
    assert torch.isfinite(v.grad).all()


def test_half_precision_is_summed_in_float32() -> None:
    v = torch.ones(1, 4096, dtype=torch.bfloat16)
    got = nft_loss(v, v, v * 0, torch.tensor([0.5]), beta=1.0)
    assert got.loss.dtype == torch.float32
    assert got.loss == 1.0


@pytest.mark.parametrize(
    ("change", "law"),
    [
        ({"beta": 0.0}, "beta must be positive"),
        ({"optimality": torch.tensor([1.5])}, r"\[0, 1\]"),
        ({"optimality": torch.tensor([float("nan")])}, r"\[0, 1\]"),
        ({"old": torch.zeros(1, 3)}, "share one"),
        ({"optimality": torch.tensor([0.5, 0.5])}, "one a sample"),
    ],
)
def test_malformed(change: dict, law: str) -> None:
    good = {"new": torch.zeros(1, 2), "old": torch.zeros(1, 2), "target": torch.zeros(1, 2)}
    good |= {"optimality": torch.tensor([0.5]), "beta": 1.0}
    with pytest.raises(ValueError, match=law):
        nft_loss(**(good | change))


def test_optimality_map() -> None:
    advantage = torch.tensor([-9.0, -5.0, 0.0, 2.5, 5.0, 9.0])
    assert optimality(advantage, 5.0).tolist() == [0.0, 0.0, 0.5, 0.75, 1.0, 1.0]


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        ("copy", {0: 0.0, 75: 0.0, 500: 0.0, 10_000: 0.0}),
        ("ramp", {0: 0.0, 75: 0.075, 500: 0.5, 10_000: 0.5}),
        ("late", {0: 0.0, 75: 0.0, 500: 0.999, 10_000: 0.999, 76: 0.0075}),
        ("linear", {0: 0.0, 10: 0.0, 12: 0.2, 100: 0.4}),
    ],
)
def test_decay_tables(kind: str, at: dict[int, float]) -> None:
    decay = DecayConfig(kind=kind, flat=10, rate=0.1, ceiling=0.4)  # type: ignore[arg-type]
    assert {s: decay.at(s) for s in at} == pytest.approx(at)


def test_config_says_all_that_is_wrong() -> None:
    bad = NftConfig(beta=0, adv_clip=-1, kl=-1, timestep_fraction=0)
    assert len(list(bad.problems())) == 4
