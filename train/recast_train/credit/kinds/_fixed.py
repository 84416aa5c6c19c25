"""A credit that never changes: most controls, and everything measured offline."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recast_eval.errors import ConfigError
from recast_eval.records import CreditRecord, digest
from recast_train.credit.base import CreditSetup, Probes


@dataclass(frozen=True, slots=True)
class FixedCredit:
    """W and where it came from; implements ``Credit``."""

    kind: str
    setup: CreditSetup
    matrix: np.ndarray
    """(K, T)."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Further fields of ``CreditRecord``: curves, errors, gains."""

    def weights(self) -> np.ndarray:
        """(K, T) W."""
        return self.matrix

    def wants(self, epoch: int) -> bool:
        """Never: it does not learn."""
        return False

    def observe(self, probes: Probes) -> CreditRecord | None:
        """Nothing to learn."""
        return None

    def record(self, epoch: int) -> CreditRecord:
        """W as it stands."""
        return make_record(self.kind, self.setup, self.matrix, epoch, **self.facts)

    def state(self) -> dict[str, Any]:
        """Nothing but a digest, so that a resumed run notices another W."""
        return {"digest": self.record(0).digest}

    def load_state(self, state: dict[str, Any]) -> None:
        """Check that the recipe still gives the same W.

        Raises:
            ConfigError: It does not: the profile changed since the run began.
        """
        check_same(self.kind, state.get("digest"), self.record(0).digest)


def check_same(kind: str, before: str | None, now: str) -> None:
    """Refuse to resume with another W; ``before`` and ``now`` are digests.

    Raises:
        ConfigError: They differ.
    """
    if before != now:
        raise ConfigError(
            [
                f"credit.kind {kind}: its W is {now} now but was {before} when the run began, so "
                "its profile changed; put that file back, or choose another --out"
            ]
        )


def make_record(
    kind: str, setup: CreditSetup, matrix: np.ndarray, epoch: int, **facts: Any
) -> CreditRecord:
    """A ``credit.jsonl`` line; the digest covers rewards, budgets, sigmas and W."""
    mass = None if setup.column_mass is None else np.asarray(setup.column_mass).tolist()
    core = {
        "kind": kind,
        "rewards": list(setup.rewards),
        "budgets": np.asarray(setup.budgets, dtype=np.float64).tolist(),
        "sigmas": np.asarray(setup.sigmas, dtype=np.float64).tolist(),
        "weights": matrix.tolist(),
    }
    return CreditRecord(
        epoch=epoch,
        **core,
        column_mass=facts.pop("column_mass", mass),
        digest=digest(core),
        **facts,
    )


def num_steps(setup: CreditSetup) -> int:
    """T."""
    return len(setup.sigmas) - 1
