"""Control: static credit with the step size that a peaked W would have had.

A peaked W makes advantages larger, which is a learning rate in disguise. ``rms_match``
removes it from the credited run; this control puts it into the static one instead.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recast_eval.records import CreditRecord, digest
from recast_train.credit.apply import normalise, rms_constant, step_coefficients
from recast_train.credit.base import CreditSetup, CreditSpec, Probes
from recast_train.credit.kinds._fixed import check_same, make_record
from recast_train.credit.kinds._measured import ProfileConfig, credit_from_profile
from recast_train.credit.kinds.static import static_matrix


@dataclass(slots=True)
class StaticRms:
    """Static W times one factor; implements ``Credit``."""

    setup: CreditSetup
    peaked: np.ndarray
    """(K, T) the W whose root mean square is matched."""
    factor: float = field(init=False)

    def __post_init__(self) -> None:
        # Until rewards are seen they count as uncorrelated.
        rewards = len(self.setup.rewards)
        self.factor = self._match(np.eye(rewards) * np.sqrt(rewards))

    def _match(self, each: np.ndarray) -> float:
        """What static W must be multiplied by under these (K, N) normalised rewards."""
        coefficients = step_coefficients(self.peaked)
        return 1.0 / rms_constant(each, coefficients, column_mass=self.setup.column_mass)

    def weights(self) -> np.ndarray:
        """(K, T); rows sum to ``factor`` times the budgets, on purpose."""
        return self.factor * static_matrix(self.setup)

    def wants(self, epoch: int) -> bool:
        """Every epoch: the rewards' correlations decide the factor, and cost nothing."""
        return True

    def observe(self, probes: Probes) -> CreditRecord | None:
        """Match the root mean square under this epoch's correlations."""
        each = normalise(probes.rewards, probes.prompts)
        self.factor = self._match(each)
        return self.record(probes.epoch)

    def record(self, epoch: int) -> CreditRecord:
        """W as it stands."""
        return make_record("static-rms", self.setup, self.weights(), epoch)

    def state(self) -> dict[str, Any]:
        """The factor, and a digest of the W that it comes from."""
        return {"factor": self.factor, "peaked": digest(self.peaked.tolist())}

    def load_state(self, state: dict[str, Any]) -> None:
        """Put back the factor.

        Raises:
            ConfigError: The profile gives another W than when the run began.
        """
        now = digest(self.peaked.tolist())
        check_same("static-rms", state.get("peaked", now), now)  # older runs did not note it
        self.factor = float(state["factor"])


def build(config: ProfileConfig, setup: CreditSetup) -> StaticRms:
    """Static credit, as loud as the W of this profile."""
    return StaticRms(setup, credit_from_profile("recast", config, setup).matrix)


CREDIT = CreditSpec(
    "static-rms",
    ProfileConfig,
    build,
    summary="control: static, with ReCAST's root mean square",
    looks=False,  # at rewards alone
)
