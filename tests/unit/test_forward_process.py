"""Work items and forwards of the methods that noise clean samples."""

from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from recast_train.methods._forward_process import noised_outputs, noised_works
from recast_train.methods.base import Work
from recast_train.policies.base import Condition, Rollout

SCALE = {"new": 2.0, "old": 3.0, "reference": 5.0}


class Scaled:
    """Velocity c x, with c by whose weights; keeps who was asked."""

    sigmas = torch.tensor([1.0, 0.5, 0.25, 0.0])

    def __init__(self, on_policy: bool) -> None:
        self.on_policy, self.asked = on_policy, list[str]()
        self.weight = torch.ones((), requires_grad=True)

    def velocity(self, x_t: Tensor, sigma: Tensor, condition: Condition, *, who: str) -> Tensor:
        self.asked.append(who)
        factor = self.weight if who == "new" else self.weight.detach()
        return factor * SCALE[who] * x_t


def _rollout(count: int) -> Rollout:
    x_0 = torch.arange(count, dtype=torch.float32).reshape(count, 1, 1).expand(count, 1, 2)
    return Rollout(x_0, Condition({"text": torch.zeros(count, 1)}))


def _works(count: int, steps: Tensor, micro_batch: int) -> list[Work]:
    return list(noised_works(_rollout(count), steps, micro_batch, Generator().manual_seed(0)))


def test_every_sample_meets_each_of_its_steps_once_and_weights_sum_to_one() -> None:
    steps = torch.tensor([[0, 1], [1, 2], [2, 0], [0, 2], [1, 0]])
    works = _works(5, steps, 2)
    met = sorted(p for w in works for p in zip(w.rows.tolist(), w.steps.tolist(), strict=True))
    assert met == sorted((row, step) for row in range(5) for step in steps[row].tolist())
    assert sum(w.weight for w in works) == pytest.approx(1.0)
    assert [len(w.rows) for w in works] == [2, 2, 2, 2, 1, 1]
    noises = torch.cat([w.noise.flatten() for w in works if w.noise is not None])
    assert len(set(noises.tolist())) == 5 * 2 * 2


@pytest.mark.parametrize("on_policy", [True, False])
@pytest.mark.parametrize("reference", [True, False])
def test_only_velocities_that_are_needed_are_computed(on_policy: bool, reference: bool) -> None:
    policy: Any = Scaled(on_policy)
    work = _works(3, torch.tensor([[1], [2], [1]]), 3)[0]
    found = noised_outputs(policy, _rollout(3), work, reference=reference).tensors
    assert policy.asked == ["new", *["old"] * (not on_policy), *["reference"] * reference]
    assert work.noise is not None
    x_0, sigma = _rollout(3).x_0, torch.tensor([0.5, 0.25, 0.5]).reshape(3, 1, 1)
    x_t = (1 - sigma) * x_0 + sigma * work.noise
    torch.testing.assert_close(found["new"], 2 * x_t)
    torch.testing.assert_close(found["old"], (2 if on_policy else 3) * x_t)
    torch.testing.assert_close(found["target"], work.noise - x_0)
    torch.testing.assert_close(found["x_0_hat"], x_t - sigma * found["old"])
    assert found["new"].requires_grad
    assert not any(v.requires_grad for k, v in found.items() if k != "new")


def test_work_without_noise_is_refused() -> None:
    work = Work(torch.arange(2), torch.tensor([0, 1]))
    policy: Any = Scaled(on_policy=True)
    with pytest.raises(ValueError, match="carries its noise"):
        noised_outputs(policy, _rollout(2), work, reference=False)
