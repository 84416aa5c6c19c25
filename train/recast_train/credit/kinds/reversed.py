"""Negative control: each reward's gains run backwards in time."""

from recast_train.credit.base import CreditSetup, CreditSpec
from recast_train.credit.kinds._fixed import FixedCredit
from recast_train.credit.kinds._measured import ProfileConfig, credit_from_profile


def build(config: ProfileConfig, setup: CreditSetup) -> FixedCredit:
    """W from time-reversed gains: the same shapes and budgets, at the wrong steps."""
    return credit_from_profile("reversed", config, setup, lambda gains: gains[:, ::-1])


CREDIT = CreditSpec("reversed", ProfileConfig, build, summary="control: gains reversed in time")
