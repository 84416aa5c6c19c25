"""The baseline: every step gets the budgets, whatever the gains."""

from dataclasses import dataclass

import numpy as np

from recast_train.credit.base import CreditSetup, CreditSpec
from recast_train.credit.kinds._fixed import FixedCredit, num_steps
from recast_train.credit.solver import static_weights


@dataclass(frozen=True, slots=True)
class StaticConfig:
    """No switches."""


def static_matrix(setup: CreditSetup) -> np.ndarray:
    """(K, T) exactly ``budgets / T``, or budgets times the column mass if there is one."""
    if setup.column_mass is None:
        return static_weights(setup.budgets, num_steps(setup))
    return np.outer(setup.budgets, setup.column_mass)


def build(config: StaticConfig, setup: CreditSetup) -> FixedCredit:
    """Static credit."""
    return FixedCredit("static", setup, static_matrix(setup))


CREDIT = CreditSpec("static", StaticConfig, build, summary="W = budget / T: the plain weighted sum")
