"""Control: a schedule over steps that others use, the same for all rewards."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict

from recast_eval.errors import ConfigError
from recast_train.credit.base import CreditSetup, CreditSpec
from recast_train.credit.kinds._fixed import FixedCredit
from recast_train.recipe_types import STRICT, Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedColumnsConfig:
    """Which schedule."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schedule: Literal["tempflow", "window"] = "tempflow"
    """``tempflow``: ``sigma_t sqrt(dt)`` with Flow-GRPO's noise (TempFlow-GRPO, arXiv
    2508.04324); ``window``: equal on a few steps, 0 elsewhere (MixGRPO, arXiv 2507.21802)."""
    start: int = 0
    """First step of the window."""
    length: int = 4
    """Steps of the window."""

    def problems(self) -> Iterator[str]:
        """What is out of range."""
        if self.start < 0:
            yield f"start: must not be negative, got {self.start}"
        if self.length < 1:
            yield f"length: must be 1 or more, got {self.length}"

    def clashes(self, recipe: Recipe) -> Iterator[str]:
        """What does not fit the rest of the recipe: a window beyond the last step."""
        end, steps = self.start + self.length, recipe.sampler.steps
        if self.schedule == "window" and end > steps:
            yield f"length: the window ends at step {end} of {steps} (sampler.steps)"


def column_schedule(config: FixedColumnsConfig, sigmas: np.ndarray) -> np.ndarray:
    """(T,) column masses, sum 1.

    Raises:
        ConfigError: The window does not fit the steps.
    """
    steps = len(sigmas) - 1
    if config.schedule == "window":
        if config.start + config.length > steps:
            end = config.start + config.length
            raise ConfigError([f"credit.length: the window ends at step {end} of {steps}"])
        mass = np.zeros(steps)
        mass[config.start : config.start + config.length] = 1.0
    else:
        source = sigmas[:-1]
        # The noise diverges at sigma = 1: Flow-GRPO puts the next level there.
        below = np.where(source >= 1.0, sigmas[1], source)
        mass = np.sqrt(source / (1.0 - below)) * np.sqrt(-np.diff(sigmas))
    out: np.ndarray = mass / mass.sum()
    return out


def build(config: FixedColumnsConfig, setup: CreditSetup) -> FixedCredit:
    """``W[k, t] = lambda_k c_t``.

    Raises:
        ConfigError: The method already has a schedule of its own.
    """
    if setup.column_mass is not None:
        raise ConfigError(["credit.kind: fixed-columns, but the method fixes the columns itself"])
    mass = column_schedule(config, np.asarray(setup.sigmas, dtype=np.float64))
    facts = {"column_mass": mass.tolist()}
    return FixedCredit("fixed-columns", setup, np.outer(setup.budgets, mass), facts)


CREDIT = CreditSpec(
    "fixed-columns",
    FixedColumnsConfig,
    build,
    summary="control: TempFlow's or a window's schedule for all rewards",
)
