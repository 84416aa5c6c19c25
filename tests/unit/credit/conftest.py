"""A measured profile of the toy world, and the file that it is in."""

from pathlib import Path

import numpy as np
import pytest

from recast_eval.records import write_json
from recast_train.credit.profile import (
    Origin,
    Profile,
    build_profile,
)
from tests.support.credit_world import NAMES, SIGMAS, samples


@pytest.fixture(scope="module")
def profile() -> Profile:
    origin = Origin("toy", "0" * 16, "gaussian", "rollouts", NAMES, SIGMAS)
    return build_profile(origin, samples(200, 20, 0), generator=np.random.default_rng(0))


@pytest.fixture
def path(profile: Profile, tmp_path: Path) -> str:
    write_json(tmp_path / "profile.json", profile)
    return str(tmp_path / "profile.json")
