"""Control: one temporal profile for all rewards, columns free.

With equal columns a separable W can only be static, so this control drops them: it spends
more of every budget where rewards gain on average, as OTCA does (arXiv 2604.19234). A method's
own column mass is what it starts from, and what its floor mixes in.
"""

import numpy as np

from recast_train.credit.base import CreditSetup, CreditSpec
from recast_train.credit.curves import relative_gains
from recast_train.credit.kinds._fixed import FixedCredit, num_steps
from recast_train.credit.kinds._measured import ProfileConfig, facts, measured
from recast_train.credit.measure import shrink


def build(config: ProfileConfig, setup: CreditSetup) -> FixedCredit:
    """``W[k, t] = lambda_k w_t``, ``w ~ mass exp(sum_k lambda_k ghat_k / temperature)``."""
    profile, found = measured(config, setup)
    gains = shrink(found.gains, found.reliability) if config.shrink else found.gains
    ghat = relative_gains(gains)
    if config.cap is not None:
        ghat = np.minimum(ghat, config.cap)
    demand = np.asarray(setup.budgets) @ (ghat / config.temperatures(setup.rewards)[:, None])
    steps = num_steps(setup)
    static = np.ones(steps) if setup.column_mass is None else steps * np.asarray(setup.column_mass)
    start = static * np.exp(demand - demand.max())
    profile_t = (1 - config.floor) * start / start.sum() + config.floor * static / steps
    return FixedCredit(
        "separable",
        setup,
        np.outer(setup.budgets, profile_t),
        {**facts(profile, found, gains, setup), "column_mass": profile_t.tolist()},
    )


CREDIT = CreditSpec(
    "separable", ProfileConfig, build, summary="control: one temporal profile for all rewards"
)
