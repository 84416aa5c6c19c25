"""What kinds that read a profile share: their switches, and gains on the run's grid."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np
from pydantic import ConfigDict

from recast_eval.errors import ConfigError, DataError
from recast_train.credit.base import CreditSetup
from recast_train.credit.kinds._fixed import FixedCredit
from recast_train.credit.measure import Measured, raw_curves, shrink
from recast_train.credit.profile import Profile, profile_gains, read_profile, reward_rows
from recast_train.credit.solver import solve_weights
from recast_train.recipe_types import STRICT, Recipe

log = logging.getLogger(__name__)
Transform = Callable[[np.ndarray], np.ndarray]
_COLDEST: Final = 1e-3
"""Below it W is the linear programme's vertex, and the solver has nothing to hold on to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveConfig:
    """From gains to W."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    gain: Literal["r2", "d2", "kl"] = "r2"
    """Share of variance (any unit), order-2 divergence, or KL; see ``curves.divergence``."""
    temperature: float | dict[str, float] = 1.0
    """Kernel ``exp(ghat / temperature)``; a number, or one for each reward."""
    floor: float = 0.1
    """Share of static W mixed in: no reward is starved at any step."""
    cap: float | None = None
    """Upper bound on ghat."""
    shrink: bool = True
    """Pull each reward's gains to flat as far as they are noise."""

    def problems(self) -> Iterator[str]:
        """What is out of range."""
        yield from temperature_problems(self.temperature)
        if not 0 <= self.floor <= 1:
            yield f"floor: must be in [0, 1], got {self.floor}"
        if self.cap is not None and not self.cap > 0:
            yield f"cap: must be positive, got {self.cap}"

    def clashes(self, recipe: Recipe) -> Iterator[str]:
        """What does not fit the rest of the recipe."""
        if wrong := self._unnamed(tuple(recipe.rewards)):
            yield f"temperature: must name each reward, see {wrong}"

    def _unnamed(self, rewards: tuple[str, ...]) -> list[str]:
        """Rewards without a temperature, and temperatures without a reward."""
        named = isinstance(self.temperature, dict)
        return sorted(set(rewards) ^ set(self.temperature)) if named else []  # type: ignore[arg-type]

    def temperatures(self, rewards: tuple[str, ...]) -> np.ndarray:
        """(K,) temperatures.

        Raises:
            ConfigError: A reward has none.
        """
        if not isinstance(self.temperature, dict):
            return np.full(len(rewards), self.temperature)
        if wrong := self._unnamed(rewards):
            raise ConfigError([f"credit.temperature: must name each reward, see {wrong}"])
        return np.array([self.temperature[name] for name in rewards])

    def solve(self, gains: np.ndarray, setup: CreditSetup) -> np.ndarray:
        """(K, T) W of these gains."""
        return solve_weights(
            gains,
            setup.budgets,
            temperature=self.temperatures(setup.rewards),
            floor=self.floor,
            column_mass=setup.column_mass,
            cap=self.cap,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileConfig(SolveConfig):
    """Gains from a profile file."""

    profile: str
    """JSON file written by ``recast-train profile``."""
    estimator: str = ""
    """Whose curve: ``corrected``, ``forward-pair``, ``cross-fit``, ``ratios``, ``plug-in``;
    the best that the profile has if empty."""

    def problems(self) -> Iterator[str]:
        """What is out of range, and a profile that cannot be read."""
        yield from SolveConfig.problems(self)
        yield from profile_problems(self.profile)

    def clashes(self, recipe: Recipe) -> Iterator[str]:
        """What does not fit the rest of the recipe: a reward that was not measured."""
        yield from SolveConfig.clashes(self, recipe)
        try:
            profile = read_profile(Path(self.profile))
            _on_grid(self, profile, tuple(recipe.rewards), np.array(profile.sigmas))
        except DataError:
            return  # ``problems`` has said so
        except ConfigError as error:
            yield from (problem.removeprefix("credit.") for problem in error.problems)

    def files(self) -> dict[str, str]:
        """What is read, for the run's manifest."""
        return {"profile": self.profile}


def temperature_problems(temperature: float | dict[str, float]) -> Iterator[str]:
    """Why a kernel cannot be made with it, if so."""
    each = temperature.values() if isinstance(temperature, dict) else [temperature]
    if not all(_COLDEST <= t < float("inf") for t in each):
        yield f"temperature: must be {_COLDEST} or more, and finite, got {temperature}"


def profile_problems(path: str) -> Iterator[str]:
    """Why a profile cannot be read, if so."""
    try:
        read_profile(Path(path))
    except DataError as error:
        yield f"profile: {error}; `recast-train profile` writes one"


def measured(config: ProfileConfig, setup: CreditSetup) -> tuple[Profile, Measured]:
    """The profile and its curves on the run's grid.

    Raises:
        ConfigError: Rewards, estimator or kind of gain do not fit.
    """
    profile = read_profile(Path(config.profile))
    warn_of_another_base(profile, config.profile, setup)
    return profile, _on_grid(config, profile, setup.rewards, setup.sigmas)


def _on_grid(
    config: ProfileConfig, profile: Profile, rewards: tuple[str, ...], sigmas: np.ndarray
) -> Measured:
    try:
        return profile_gains(profile, rewards, sigmas, estimator=config.estimator, gain=config.gain)
    except ConfigError as error:
        raise ConfigError(
            [f"credit.profile {config.profile}: {p}" for p in error.problems]
        ) from None
    except ValueError as error:
        raise ConfigError([f"credit.gain: {error}"]) from error


def warn_of_another_base(profile: Profile, path: str, setup: CreditSetup) -> None:
    """Say that gains were measured on another model than the one that is trained."""
    if setup.base_model and profile.base_model != setup.base_model:
        log.warning(
            "%s was measured on %s, but this run trains %s: its gains may lie at other steps",
            path,
            profile.base_model,
            setup.base_model,
        )


def credit_from_profile(
    kind: str, config: ProfileConfig, setup: CreditSetup, transform: Transform = lambda g: g
) -> FixedCredit:
    """Solve W from a profile's gains, changed by ``transform`` in a control."""
    profile, found = measured(config, setup)
    gains = shrink(found.gains, found.reliability) if config.shrink else found.gains
    used = transform(gains)
    return FixedCredit(kind, setup, config.solve(used, setup), facts(profile, found, used, setup))


def facts(
    profile: Profile, found: Measured, gains: np.ndarray, setup: CreditSetup
) -> dict[str, Any]:
    """Fields of the credit record: what W was solved from, and every estimator's raw curve."""
    rows = reward_rows(profile, setup.rewards)
    return {
        "curves": found.curves.tolist(),
        "curve_errors": found.errors.tolist(),
        "raw_curves": {
            name: raw_curves(np.array(c.information)[rows], profile.probes, setup.sigmas).tolist()
            for name, c in profile.estimates.items()
        },
        "gains": gains.tolist(),
        "reliability": found.reliability.tolist(),
    }
