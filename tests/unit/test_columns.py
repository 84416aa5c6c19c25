"""A step's share of the training survives every mode and every aggregator."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from recast_train.aggregators import AGGREGATORS
from recast_train.columns import column_shares, whitened
from recast_train.config import make_plan
from recast_train.loop import mixed_advantages
from recast_train.rebrl import column_mass, mask_counts, preset

STEPS, GROUPS = 8, np.repeat(np.arange(4), 12)
REBRL = np.array(column_mass(mask_counts(64, STEPS), preset("rebrl")))
WINDOW = np.array([0.0, 0.0, 0.25, 0.25, 0.25, 0.25, 0.0, 0.0])


def _parts(weights: np.ndarray, mode: str, kind: str, rms_match: bool = False) -> Any:
    plan = make_plan(
        {
            "name": "s",
            "seed": 1,
            "model": {"base": "starter"},
            "prompts": {"set": "signs"},
            "groups": {"prompts_per_epoch": 1, "group_size": 3},
            "rewards": {"ocr": 3, "finish": 2},
            "method": {"kind": "nft"},
            "epochs": 1,
            "mode": mode,
            "advantage": {"rms_match": rms_match},
            "aggregator": {"kind": kind, **({"start": "uniform"} if kind == "marble" else {})},
        }
    )
    spec = AGGREGATORS.load(kind)
    return SimpleNamespace(
        plan=plan,
        credit=SimpleNamespace(weights=lambda: weights),
        column_mass=None,
        density=None,
        aggregator=spec.build(plan.aggregator_config, plan.budgets),
    )


def _rms(weights: np.ndarray, mode: str, kind: str, rms_match: bool = False) -> np.ndarray:
    rewards = np.random.default_rng(0).standard_normal((2, len(GROUPS)))
    found = mixed_advantages(_parts(weights, mode, kind, rms_match), rewards, GROUPS)
    return found.square().mean(dim=1).sqrt().numpy()


@pytest.mark.parametrize("rms_match", [False, True])
@pytest.mark.parametrize("mass", [REBRL, WINDOW], ids=["rebrl", "window"])
@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        *((mode, kind) for mode in ("advantage", "loss") for kind in AGGREGATORS),
        ("pre", "weighted-sum"),
    ],
)
def test_columns_keep_their_mass(mode: str, kind: str, mass: np.ndarray, rms_match: bool) -> None:
    weights = np.outer([0.6, 0.4], mass / mass.sum())
    flat = _rms(np.full((2, STEPS), 1 / STEPS) * [[0.6], [0.4]], mode, kind)
    found = _rms(weights, mode, kind, rms_match)
    np.testing.assert_allclose(found / found.mean(), STEPS * mass / mass.sum(), rtol=2e-4)
    if not rms_match:  # as loud as static W, on average over the steps
        np.testing.assert_allclose(found.mean(), flat.mean(), rtol=2e-4)


def test_equal_columns_are_left_to_the_bit() -> None:
    weights = np.random.default_rng(1).random((3, 7))
    weights /= weights.sum(axis=0)  # equal up to rounding
    assert column_shares(weights).tolist() == [1.0] * 7
    row = torch.randn(50, generator=torch.Generator().manual_seed(2)) * 0.3
    rows = row.repeat(7, 1)
    alone = (row - row.mean()) / ((row - row.mean()).std(correction=0) + 1e-4)
    torch.testing.assert_close(whitened(rows, 1e-4), alone.repeat(7, 1), rtol=1e-6, atol=1e-7)
    centred = rows - rows.mean(dim=1, keepdim=True)
    by_step = centred / (centred.std(dim=1, correction=0, keepdim=True) + 1e-4)
    assert torch.equal(whitened(rows, 1e-4), by_step)


def test_a_louder_step_stays_louder_than_a_quiet_one() -> None:
    row = torch.randn(1000, generator=torch.Generator().manual_seed(3))
    found = whitened(torch.stack([row, 3 * row]), 1e-9)
    np.testing.assert_allclose(found.std(dim=1, correction=0).numpy(), [0.5, 1.5], rtol=1e-6)
