"""The profile file: curves measured once, for ``weights`` and for offline credit."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from recast_eval.errors import ConfigError
from recast_eval.records import Record, read_json
from recast_train.credit.curves import Gain, discriminability
from recast_train.credit.estimators import ESTIMATORS, Estimate, Samples
from recast_train.credit.estimators.cross_fit import predict
from recast_train.credit.estimators.ratios import observed_ratios
from recast_train.credit.measure import Measured, measure

Array = npt.NDArray[np.float64]
_REPLICATES = 100
_DIGITS = 6


class Curve(Record):
    """One estimator's ICC of K rewards at P noise levels."""

    information: list[list[float]]
    """(K, P) raw: it may leave [0, 1] or fall."""
    errors: list[list[float]]
    """(K, P) standard errors, bootstrap over prompts."""
    replicates: list[list[list[float]]]
    """(B, K, P) that the errors come from; gains need their correlations."""
    biased: bool = False
    """Kept for comparison alone."""


class Profile(Record):
    """How much of each reward is decided at each noise level, and what it was measured on."""

    schema_version: Literal[1] = 1
    kind: Literal["credit-profile"] = "credit-profile"
    recipe_name: str
    recipe_digest: str
    base_model: str
    source: Literal["rollouts", "images"]
    """The policy's own images, which its gains are defined on, or given ones."""
    rewards: list[str]
    sigmas: list[float]
    """(T+1,) the sampler's grid."""
    probes: list[float]
    """(P,) noise levels measured, strictly falling inside (0, 1)."""
    prompts: int
    images: int
    scored: dict[str, list[int]]
    """Reward -> [scored, images that it applies to]."""
    mean: list[float]
    variance: list[float]
    """(K,) within prompts."""
    estimates: dict[str, Curve] = Field(min_length=1)
    published: list[list[float]] | None = None
    """(K, P + 2) order-2 curves as the published code would have them: log of the mean of
    squared ratios at sigma 1, the probes and 0; not pooled. None: a reward has no ratio."""

    @model_validator(mode="after")
    def _grids(self) -> "Profile":
        if not self.rewards or len(set(self.rewards)) != len(self.rewards):
            raise ValueError(f"rewards: must be one or more, each once, got {self.rewards}")
        if len(self.sigmas) < 2:
            raise ValueError("sigmas: must be two or more")
        for name, grid in (("sigmas", self.sigmas), ("probes", self.probes)):
            if not (np.diff(grid) < 0).all():
                raise ValueError(f"{name}: must fall strictly")
        if not self.probes or not (
            self.sigmas[-1] < self.probes[-1] <= self.probes[0] < self.sigmas[0]
        ):
            raise ValueError("probes: must lie inside the range of sigmas")
        return self

    @model_validator(mode="after")
    def _shapes(self) -> "Profile":
        k, p = len(self.rewards), len(self.probes)
        for name, curve in self.estimates.items():
            for field in ("information", "errors"):
                if np.shape(getattr(curve, field)) != (k, p):
                    raise ValueError(f"estimates.{name}.{field}: must be ({k}, {p})")
            draws = np.shape(curve.replicates)
            if draws[1:] != (k, p) or draws[0] < 2:
                raise ValueError(f"estimates.{name}.replicates: must be (B > 1, {k}, {p})")
        if self.published is not None and np.shape(self.published) != (k, p + 2):
            raise ValueError(f"published: must be ({k}, {p + 2})")
        if len(self.mean) != k or len(self.variance) != k:
            raise ValueError(f"mean and variance: must be ({k},)")
        if min(self.variance) < 0:
            raise ValueError("variance: must not be negative")
        return self

    @property
    def default_estimator(self) -> str:
        """The best one that was measured."""
        order = [n for n in ("corrected", "forward-pair", "cross-fit") if n in self.estimates]
        return order[0] if order else next(iter(self.estimates))


@dataclass(frozen=True, slots=True)
class Origin:
    """What a profile was measured on."""

    recipe_name: str
    recipe_digest: str
    base_model: str
    source: Literal["rollouts", "images"]
    rewards: tuple[str, ...]
    sigmas: Array
    """(T+1,)"""


def read_profile(path: Path) -> Profile:
    """Read a profile.

    Raises:
        DataError: There is none at this path, or it does not fit the schema.
    """
    return read_json(path, Profile)


def build_profile(origin: Origin, samples: Samples, *, generator: np.random.Generator) -> Profile:
    """Run every estimator that the samples allow.

    Args:
        origin: Names for the record.
        samples: Rewards, features, completions.
        generator: Draws folds and bootstraps.

    Raises:
        ValueError: No estimator can run on these samples.
    """
    found = {name: _run(name, samples, generator) for name in ESTIMATORS}
    estimates = {name: one for name, one in found.items() if one is not None}
    if not estimates:
        raise ValueError("nothing to estimate from: give completions, x0_rewards or features")
    first = next(iter(estimates.values()))
    scored = (~np.isnan(samples.rewards)).sum(axis=1)
    count = samples.rewards.shape[1]
    return Profile(
        recipe_name=origin.recipe_name,
        recipe_digest=origin.recipe_digest,
        base_model=origin.base_model,
        source=origin.source,
        rewards=list(origin.rewards),
        sigmas=origin.sigmas.tolist(),
        probes=samples.sigmas.tolist(),
        prompts=len(np.unique(samples.prompts)),
        images=count,
        scored={n: [int(s), count] for n, s in zip(origin.rewards, scored, strict=True)},
        mean=first.mean.tolist(),
        variance=first.variance.tolist(),
        estimates={name: _curve(one) for name, one in estimates.items()},
        published=_published(samples, generator),
    )


def profile_gains(
    profile: Profile,
    rewards: tuple[str, ...],
    sigmas: npt.ArrayLike,
    *,
    estimator: str = "",
    gain: Gain = "r2",
) -> Measured:
    """A profile's curves on a sampler's grid, in the order of ``rewards``.

    Args:
        profile: Any grid of its own.
        rewards: Names, all of them in the profile.
        sigmas: (T+1,) grid to put the curves on.
        estimator: Whose curve; the profile's best if empty.
        gain: ``r2``, ``d2`` or ``kl``.

    Raises:
        ConfigError: A reward or the estimator is not in the profile.
        ValueError: The rewards do not allow this kind of gain.
    """
    rows = reward_rows(profile, rewards)
    name = estimator or profile.default_estimator
    if name not in profile.estimates:
        have = ", ".join(profile.estimates)
        raise ConfigError([f"estimator: the profile has {have}, not {name!r}"])
    curve = profile.estimates[name]
    return measure(
        np.array(curve.information)[rows],
        np.array(curve.replicates)[:, rows],
        profile.probes,
        sigmas,
        mean=np.array(profile.mean)[rows],
        variance=np.array(profile.variance)[rows],
        gain=gain,
        bound=name == "cross-fit",
    )


def reward_rows(profile: Profile, rewards: tuple[str, ...]) -> list[int]:
    """Rows of the profile that belong to ``rewards``.

    Raises:
        ConfigError: Names those that are missing.
    """
    missing = [name for name in rewards if name not in profile.rewards]
    if missing:
        have = ", ".join(profile.rewards)
        raise ConfigError([f"rewards: the profile measured {have}, not {', '.join(missing)}"])
    return [profile.rewards.index(name) for name in rewards]


def _run(name: str, samples: Samples, generator: np.random.Generator) -> Estimate | None:
    """An estimate, or None if the samples lack what it needs."""
    features = samples.predictable
    needs = {
        "forward-pair": samples.completions is not None,
        "plug-in": samples.x0_rewards is not None,
        "corrected": features and samples.completions is not None,
    }
    if not needs.get(name, features):
        return None
    return ESTIMATORS[name](samples, replicates=_REPLICATES, generator=generator)


def _curve(found: Estimate) -> Curve:
    return Curve(
        information=found.information.tolist(),
        errors=found.errors.tolist(),
        replicates=np.round(found.replicates, _DIGITS).tolist(),
        biased=found.biased,
    )


def _published(samples: Samples, generator: np.random.Generator) -> list[list[float]] | None:
    if not samples.predictable:
        return None
    try:
        rho = observed_ratios(samples, predict(samples, folds=4, generator=generator))
        curves = [discriminability(row) for row in rho]
    except ValueError:  # negative rewards, or one that no prompt ever earned: no ratio exists
        return None
    return [[0.0, *curve.tolist()] for curve in curves]
