"""ReCAST as published: ratios, order 2, log of the mean, clipped differences, no floor.

Use it with ``mode: pre``. The official code reads one NPZ a reward; a profile of ours holds
the same curves. Chen et al. 2026, arXiv 2609.13425.
"""

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from recast_eval.errors import ConfigError, DataError
from recast_train.credit.base import CreditSetup, CreditSpec
from recast_train.credit.curves import discriminability, published_gains
from recast_train.credit.kinds._fixed import FixedCredit, num_steps
from recast_train.credit.kinds._measured import profile_problems
from recast_train.credit.profile import read_profile, reward_rows
from recast_train.credit.solver import solve_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedConfig:
    """Where the ratios are: one of the two."""

    profile: str = ""
    """JSON file written by ``recast-train profile``."""
    ratios: dict[str, str] = field(default_factory=dict)
    """Reward -> NPZ with ``ratio`` (N, T) at the destinations and ``sigmas`` (T+1,)."""
    temperature: float = 1.0

    def problems(self) -> Iterator[str]:
        """What is out of range or cannot be read."""
        if bool(self.profile) == bool(self.ratios):
            yield "profile or ratios: give one of them"
        if self.profile:
            yield from profile_problems(self.profile)
        for name, path in self.ratios.items():
            if not Path(path).is_file():
                yield f"ratios.{name}: no file {path}"
        if self.temperature <= 0:
            yield f"temperature: must be positive, got {self.temperature}"

    def files(self) -> dict[str, str]:
        """What is read, for the run's manifest."""
        own = {f"ratios.{name}": path for name, path in self.ratios.items()}
        return {"profile": self.profile} if self.profile else own


def build(config: PublishedConfig, setup: CreditSetup) -> FixedCredit:
    """W from published gains.

    Raises:
        ConfigError: The profile or the files do not fit the run.
    """
    curves = _from_profile(config, setup) if config.profile else _from_files(config, setup)
    gains = published_gains(curves)
    weights = solve_weights(
        gains, setup.budgets, temperature=config.temperature, column_mass=setup.column_mass
    )
    facts = {"curves": curves.tolist(), "gains": gains.tolist()}
    return FixedCredit("recast-published", setup, weights, facts)


def _from_profile(config: PublishedConfig, setup: CreditSetup) -> np.ndarray:
    profile = read_profile(Path(config.profile))
    if profile.published is None:
        raise ConfigError(
            [f"credit.profile {config.profile}: a reward there is negative, so it has no ratios"]
        )
    knots = np.array([1.0, *profile.probes, 0.0])
    rows = np.array(profile.published)[reward_rows(profile, setup.rewards)]
    return np.stack([np.interp(-np.asarray(setup.sigmas), -knots, row) for row in rows])


def _from_files(config: PublishedConfig, setup: CreditSetup) -> np.ndarray:
    wrong = set(setup.rewards) ^ set(config.ratios)
    if wrong:
        raise ConfigError([f"credit.ratios: must name each reward, see {sorted(wrong)}"])
    rows = [read_ratios(Path(config.ratios[name]), num_steps(setup)) for name in setup.rewards]
    return np.stack([np.concatenate([[0.0], discriminability(row)]) for row in rows])


def read_ratios(path: Path, steps: int) -> np.ndarray:
    """(N, T) ratios of an NPZ as the official code writes it.

    Raises:
        DataError: The file is no NPZ, or its arrays do not fit.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            ratio = np.asarray(file["ratio"], dtype=np.float64)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"no NPZ with an array 'ratio' ({error})", path=path) from error
    if ratio.ndim != 2 or ratio.shape[1] != steps:
        raise DataError(f"ratio must be (N, {steps}), got {ratio.shape}", path=path)
    if not np.isfinite(ratio).all() or (ratio < 0).any():
        raise DataError("ratio must be finite and >= 0", path=path)
    return ratio


CREDIT = CreditSpec(
    "recast-published",
    PublishedConfig,
    build,
    summary="W as published: offline, clipped, log of the mean; with mode pre",
)
