"""ReCAST from a profile: gains measured once, shrunk to what is signal, solved exactly."""

from recast_train.credit.base import CreditSetup, CreditSpec
from recast_train.credit.kinds._fixed import FixedCredit
from recast_train.credit.kinds._measured import ProfileConfig, credit_from_profile


def build(config: ProfileConfig, setup: CreditSetup) -> FixedCredit:
    """W from the profile's gains."""
    return credit_from_profile("recast", config, setup)


CREDIT = CreditSpec("recast", ProfileConfig, build, summary="W from gains measured offline")
