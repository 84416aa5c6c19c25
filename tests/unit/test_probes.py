"""Which steps are probed, and what is kept of training's estimates."""

import torch

from recast_train.credit import CREDITS
from recast_train.methods.base import Outputs, Work
from recast_train.policies.base import Condition, Rollout
from recast_train.probes import ProbeCollector, probe_steps


def test_probed_steps_are_spread_without_pure_noise() -> None:
    assert probe_steps(10, 99) == list(range(1, 10))
    assert probe_steps(25, 3) == [1, 12, 24]
    assert probe_steps(25, 2) == [1, 24]
    assert probe_steps(25, 1) == [12]  # not next to pure noise
    assert probe_steps(3, 1) == [1]
    assert probe_steps(2, 4) == [1]
    assert probe_steps(1, 4) == [0]


def _after(keep: bool) -> ProbeCollector:
    """One that has seen a micro-batch of 64 samples, of which it shows two."""
    collector = ProbeCollector(
        policy=None,  # type: ignore[arg-type]
        rollout=Rollout(torch.zeros(64, 8), Condition({})),
        steps=[1],
        rows=torch.tensor([3, 4]),
        score=lambda images, rows: images,
        seed=0,
        keep=keep,
    )
    work = Work(torch.arange(64), torch.ones(64, dtype=torch.int64), None, 1.0)
    collector.observer(torch.arange(64))(work, Outputs({"x_0_hat": torch.ones(64, 8)}))
    return collector


def test_no_more_is_kept_than_is_shown() -> None:
    kept = _after(keep=True)._found
    assert sorted(kept) == [(1, 3), (1, 4)]
    assert sum(x.untyped_storage().nbytes() for x in kept.values()) == 2 * 8 * 4


def test_nothing_is_kept_for_a_credit_that_looks_at_rewards_alone() -> None:
    assert not CREDITS.load("static-rms").looks
    assert CREDITS.load("recast-online").looks
    assert not _after(keep=False)._found
