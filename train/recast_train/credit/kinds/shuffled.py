"""Negative control: each reward gets another reward's gains."""

import numpy as np

from recast_train.credit.base import CreditSetup, CreditSpec
from recast_train.credit.kinds._fixed import FixedCredit
from recast_train.credit.kinds._measured import ProfileConfig, credit_from_profile


def other_rows(rewards: int, seed: int) -> np.ndarray:
    """(K,) a permutation that leaves no reward in place: one random cycle (Sattolo 1986)."""
    generator = np.random.default_rng(seed)
    rows = np.arange(rewards)
    for last in range(rewards - 1, 0, -1):
        swap = int(generator.integers(last))
        rows[[last, swap]] = rows[[swap, last]]
    return rows


def build(config: ProfileConfig, setup: CreditSetup) -> FixedCredit:
    """W from gains handed to the wrong rewards; budgets stay where they were."""
    rows = other_rows(len(setup.rewards), setup.seed)
    return credit_from_profile("shuffled", config, setup, lambda gains: gains[rows])


CREDIT = CreditSpec("shuffled", ProfileConfig, build, summary="control: gains of another reward")
