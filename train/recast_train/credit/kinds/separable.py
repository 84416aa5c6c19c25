"""Control: one temporal profile for all rewards, columns free.

With equal columns a separable W can only be static, so this control drops them: it spends
more of every budget where rewards gain on average, as OTCA does (arXiv 2604.19234).
"""

import numpy as np

from recast_train.credit.base import CreditSetup, CreditSpec
from recast_train.credit.curves import relative_gains
from recast_train.credit.kinds._fixed import FixedCredit
from recast_train.credit.kinds._measured import ProfileConfig, facts, measured
from recast_train.credit.measure import shrink


def build(config: ProfileConfig, setup: CreditSetup) -> FixedCredit:
    """``W[k, t] = lambda_k w_t``, ``w ~ exp(sum_k lambda_k ghat_k / temperature)``."""
    profile, found = measured(config, setup)
    gains = shrink(found.gains, found.reliability) if config.shrink else found.gains
    ghat = relative_gains(gains) / config.temperatures(setup.rewards)[:, None]
    demand = np.asarray(setup.budgets) @ ghat
    start = np.exp(demand - demand.max())
    steps = len(start)
    profile_t = (1 - config.floor) * start / start.sum() + config.floor / steps
    return FixedCredit(
        "separable",
        setup,
        np.outer(setup.budgets, profile_t),
        {**facts(profile, found, gains, setup), "column_mass": profile_t.tolist()},
    )


CREDIT = CreditSpec(
    "separable", ProfileConfig, build, summary="control: one temporal profile for all rewards"
)
