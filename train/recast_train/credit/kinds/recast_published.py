"""ReCAST as published: ratios, order 2, log of the mean, clipped differences, no floor.

Use it with ``mode: pre``. The official code reads one NPZ a reward; a profile of ours holds
the same curves. Chen et al. 2026, arXiv 2609.13425.
"""

import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
from pydantic import ConfigDict

from recast_eval.errors import ConfigError, DataError
from recast_train.credit.base import CreditSetup, CreditSpec
from recast_train.credit.curves import discriminability, published_gains
from recast_train.credit.kinds._fixed import FixedCredit
from recast_train.credit.kinds._measured import (
    profile_problems,
    temperature_problems,
    warn_of_another_base,
)
from recast_train.credit.profile import Profile, read_profile, reward_rows
from recast_train.credit.solver import solve_weights
from recast_train.recipe_types import STRICT, Recipe

_BROKEN: Final = (zipfile.BadZipFile, zlib.error, NotImplementedError)
_SAME_LEVEL: Final = 1e-3
"""Noise levels nearer than this are the same: files hold them in half or single precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedConfig:
    """Where the ratios are: one of the two."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    profile: str = ""
    """JSON file written by ``recast-train profile``."""
    ratios: dict[str, str] = field(default_factory=dict)
    """Reward -> NPZ with ``ratio`` (N, T) at the destinations and ``sigmas`` (T+1,), the run's
    own noise levels, noise first."""
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
        yield from temperature_problems(self.temperature)

    def clashes(self, recipe: Recipe) -> Iterator[str]:
        """What does not fit the rest of the recipe, as far as files alone can tell."""
        try:
            if self.profile:
                published_rows(self.profile, tuple(recipe.rewards))
            else:
                _check_names(self.ratios, tuple(recipe.rewards))
        except DataError:
            return  # ``problems`` has said so
        except ConfigError as error:
            yield from (problem.removeprefix("credit.") for problem in error.problems)
            return
        for name, path in self.ratios.items():
            try:
                read_ratios(Path(path), recipe.sampler.steps)
            except DataError as error:
                yield f"ratios.{name}: {error}"

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
    profile, rows = published_rows(config.profile, setup.rewards)
    warn_of_another_base(profile, config.profile, setup)
    knots = np.array([1.0, *profile.probes, 0.0])
    return np.stack([np.interp(-np.asarray(setup.sigmas), -knots, row) for row in rows])


def published_rows(path: str, rewards: tuple[str, ...]) -> tuple[Profile, np.ndarray]:
    """A profile and its (K, P + 2) published curves of ``rewards``.

    Raises:
        ConfigError: It has none, or not of each reward.
        DataError: It cannot be read.
    """
    profile = read_profile(Path(path))
    try:
        rows = reward_rows(profile, rewards)
    except ConfigError as error:
        raise ConfigError([f"credit.profile {path}: {p}" for p in error.problems]) from None
    if profile.published is None:
        raise ConfigError(
            [f"credit.profile {path}: a reward there is negative, so it has no ratios"]
        )
    return profile, np.array(profile.published)[rows]


def _check_names(ratios: dict[str, str], rewards: tuple[str, ...]) -> None:
    wrong = set(rewards) ^ set(ratios)
    if wrong:
        raise ConfigError([f"credit.ratios: must name each reward, see {sorted(wrong)}"])


def _from_files(config: PublishedConfig, setup: CreditSetup) -> np.ndarray:
    _check_names(config.ratios, setup.rewards)
    rows = [published_curve(Path(config.ratios[name]), setup.sigmas) for name in setup.rewards]
    return np.stack(rows)


def published_curve(path: Path, sigmas: np.ndarray) -> np.ndarray:
    """(T+1,) order-2 curve of an NPZ as the official code writes it, 0 at pure noise.

    Args:
        path: Its ``ratio`` is (N, T), its ``sigmas`` (T+1,), noise first.
        sigmas: (T+1,) the run's noise levels, which the file's must be.

    Raises:
        DataError: The file is no NPZ, its arrays do not fit, or it was made on another grid.
    """
    ratio, grid = read_ratios(path, len(sigmas) - 1)
    if grid.shape != sigmas.shape or not np.allclose(grid, sigmas, rtol=0.0, atol=_SAME_LEVEL):
        raise DataError(
            f"sigmas are {_short(grid)}, but the run's are {_short(sigmas)}: measure on the run's "
            "own noise levels (sampler.steps, sampler.shift), noise first",
            path=path,
        )
    try:
        return np.concatenate([[0.0], discriminability(ratio)])
    except ValueError as error:
        raise DataError(str(error), path=path) from error


def read_ratios(path: Path, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """(N, T) ratios and the noise levels that the file gives for them, not yet compared.

    Raises:
        DataError: The file is no NPZ, or its ratios are of another number of steps.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            ratio, sigmas = (np.asarray(file[name]) for name in ("ratio", "sigmas"))
    except (OSError, ValueError, KeyError, EOFError, TypeError, *_BROKEN) as error:
        raise DataError(f"no NPZ with arrays 'ratio' and 'sigmas' ({error})", path=path) from error
    for name, array in (("ratio", ratio), ("sigmas", sigmas)):
        if array.dtype.kind not in "fiu":
            raise DataError(f"{name} must be real numbers, got {array.dtype}", path=path)
    if ratio.ndim != 2 or ratio.shape[1] != steps:
        raise DataError(f"ratio must be (N, {steps}), got {ratio.shape}", path=path)
    return ratio.astype(np.float64), sigmas.astype(np.float64)


def _short(grid: np.ndarray) -> str:
    """A grid for a message: its ends."""
    values = [f"{value:.4g}" for value in grid.ravel()]
    shown = values if len(values) <= 6 else [*values[:3], "...", *values[-2:]]
    return f"({', '.join(shown)}) of shape {grid.shape}"


CREDIT = CreditSpec(
    "recast-published",
    PublishedConfig,
    build,
    summary="W as published: offline, clipped, log of the mean; with mode pre",
)
