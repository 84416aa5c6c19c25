"""ReCAST online: gains follow the policy, from rollouts that are scored anyway.

Every refresh cross-fits the rewards on the old policy's x_0 estimates, which the training
step computes anyway; every so many epochs forward pairs say what that misses. W stays static
until the curves stand out of their noise.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from recast_eval.errors import ConfigError
from recast_eval.records import CreditRecord
from recast_train.credit.base import CreditSetup, CreditSpec, Probes
from recast_train.credit.estimators import Samples
from recast_train.credit.estimators.base import (
    Estimate,
    between,
    from_parts,
    prompt_index,
    prompt_weights,
)
from recast_train.credit.estimators.corrected import correction_share
from recast_train.credit.estimators.cross_fit import bound_sums, predict
from recast_train.credit.estimators.forward_pair import pair_sums
from recast_train.credit.kinds._fixed import make_record
from recast_train.credit.kinds._measured import SolveConfig
from recast_train.credit.kinds._moving import Moving
from recast_train.credit.kinds.shuffled import other_rows
from recast_train.credit.kinds.static import static_matrix
from recast_train.credit.measure import Measured, measure, raw_curves, shrink
from recast_train.recipe_types import Recipe

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineConfig(SolveConfig):
    """When to look, how long to remember, when to believe."""

    refresh_every: int = 10
    """Epochs between cross-fits; each decodes and scores the x_0 estimates of all probes."""
    correct_every: int = 10
    """Epochs between forward pairs, which cost model calls too; 0: never. Both cost in
    proportion to the recipe's ``probes``; see docs/credit.md."""
    correct_probes: int = 0
    """Noise levels completed at a correction, in turn; 0: all."""
    ema: float = 0.9
    """Decay of the curves per refresh."""
    correct_ema: float = 0.9
    """Decay of the correction per measurement."""
    x0_rewards: bool = True
    """Score the decoded x_0 estimates as features; without, latent statistics alone (free)."""
    warm_up: int = 1
    """Refreshes before W may leave static."""
    min_reliability: float = 0.2
    """A reward below it counts as flat."""
    replicates: int = 100
    """Bootstrap draws."""
    folds: int = 4
    """Cross-fitting parts."""
    control: Literal["none", "reversed", "shuffled"] = "none"
    """Negative controls: gains reversed in time, or handed to another reward."""

    def problems(self) -> Iterator[str]:
        """What is out of range."""
        yield from SolveConfig.problems(self)
        for key, least in (("refresh_every", 1), ("replicates", 2), ("folds", 2)):
            if getattr(self, key) < least:
                yield f"{key}: must be {least} or more, got {getattr(self, key)}"
        for key in ("correct_every", "correct_probes", "warm_up"):
            if getattr(self, key) < 0:
                yield f"{key}: must not be negative, got {getattr(self, key)}"
        for key in ("ema", "correct_ema"):
            if not 0 <= getattr(self, key) < 1:
                yield f"{key}: must be in [0, 1), got {getattr(self, key)}"
        if not 0 <= self.min_reliability <= 1:
            yield f"min_reliability: must be in [0, 1], got {self.min_reliability}"

    def clashes(self, recipe: Recipe) -> Iterator[str]:
        """What does not fit the rest of the recipe: an epoch that shows too little."""
        yield from SolveConfig.clashes(self, recipe)
        drawn = recipe.groups.prompts_per_epoch
        shown = min(recipe.probes.groups or drawn, drawn)
        if shown < 2 and len(recipe.rewards) > 1 and recipe.sampler.steps > 1:
            yield (
                "kind: recast-online needs 2 prompts or more an epoch, "
                f"got {shown} (groups.prompts_per_epoch, probes.groups)"
            )


@dataclass(slots=True)
class OnlineCredit:
    """W that follows the policy; implements ``Credit``."""

    config: OnlineConfig
    setup: CreditSetup
    bound: Moving = field(init=False)
    """(1 + B, K, P) cross-fitted ICC: of the data, then of the replicates. A reward that an
    epoch could not measure stays as it is, here and below."""
    missing: Moving = field(init=False)
    """(1 + B, K, P) forward pair minus cross-fit."""
    moments: Moving = field(init=False)
    """(2, K) mean (see ``Estimate.mean``) and within-prompt variance."""
    matrix: np.ndarray = field(init=False)
    facts: dict[str, Any] = field(default_factory=dict)
    probes: list[float] = field(default_factory=list)
    refreshes: int = 0
    corrections: int = 0

    def __post_init__(self) -> None:
        self.bound, self.moments = Moving(self.config.ema), Moving(self.config.ema)
        self.missing = Moving(self.config.correct_ema)
        self.matrix = static_matrix(self.setup)

    def weights(self) -> np.ndarray:
        """(K, T) W to use now."""
        return self.matrix

    def wants(self, epoch: int) -> bool:
        """Whether this epoch refreshes or corrects; one reward or one step leaves no choice."""
        if len(self.setup.rewards) < 2 or len(self.setup.sigmas) < 3:
            return False
        return epoch % self.config.refresh_every == 0 or self._corrects(epoch)

    def _corrects(self, epoch: int) -> bool:
        return self.config.correct_every > 0 and epoch % self.config.correct_every == 0

    def observe(self, probes: Probes) -> CreditRecord | None:
        """Take in an epoch's probes and solve W anew.

        Raises:
            ConfigError: Fewer than two prompts are shown, the probed levels changed, or the
                rewards do not allow the kind of gain.
        """
        samples = self._samples(probes)
        generator = np.random.default_rng([self.setup.seed, probes.epoch])
        weights = prompt_weights(samples, self.config.replicates, generator)
        found = predict(samples, folds=self.config.folds, generator=generator)
        bound = from_parts("cross-fit", samples, [bound_sums(found)], weights=weights)
        self.bound.add(_stack(bound), bound.measured[:, None])
        self.moments.add(np.stack([bound.mean, bound.variance]), bound.measured)
        if self._corrects(probes.epoch):
            self._correct(probes, samples, bound, weights)
        self.refreshes += 1
        self._solve()
        return self.record(probes.epoch)

    def _samples(self, probes: Probes) -> Samples:
        levels = np.asarray(probes.sigmas, dtype=np.float64)
        if len(np.unique(probes.prompts)) < 2:
            raise ConfigError(["probes.groups: online credit needs 2 prompts or more an epoch"])
        if self.probes and self.probes != levels.tolist():
            raise ConfigError([f"probes.steps: probed {self.probes} before, now {levels.tolist()}"])
        self.probes = levels.tolist()
        return Samples(
            rewards=np.asarray(probes.rewards, dtype=np.float64),
            prompts=np.asarray(probes.prompts),
            sigmas=levels,
            x0_rewards=probes.x0_rewards() if self.config.x0_rewards else None,
            features=probes.features(),
        )

    def _correct(
        self, probes: Probes, samples: Samples, bound: Estimate, weights: np.ndarray
    ) -> None:
        levels = len(samples.sigmas)
        size = min(self.config.correct_probes or levels, levels)
        picks = np.sort((self.corrections * size + np.arange(size)) % levels)
        completions = np.stack([probes.complete(int(index)) for index in picks])
        part = replace(
            samples,
            sigmas=samples.sigmas[picks],
            x0_rewards=None,
            features=None,
            completions=completions,
        )
        sums = pair_sums(samples.rewards, completions, prompt_index(samples.prompts))
        pair = from_parts("forward-pair", part, [sums], weights=weights)
        values = np.zeros((1 + self.config.replicates, len(self.setup.rewards), levels))
        values[..., picks] = _stack(pair) - _stack(bound)[..., picks]
        seen = np.zeros(values.shape[1:], dtype=bool)
        seen[:, picks] = sums.enough & bound.measured[:, None]
        self.missing.add(values, seen)
        self.corrections += 1

    def _solve(self) -> None:
        bound = self.bound.mean()
        curves = {"cross-fit": bound[0]}
        every, alone = bound, np.ones(bound.shape[1], dtype=bool)
        if self.missing.total is not None:
            gap, alone = self._gap(), np.logical_not(self.missing.seen.any(axis=1))
            share = correction_share(gap[0], gap[1:])[:, None]
            every = bound + share * gap
            curves |= {"forward-pair": (bound + gap)[0], "corrected": every[0]}
        found = self._measure(every, alone)
        trust = np.where(found.reliability < self.config.min_reliability, 0.0, found.reliability)
        gains = shrink(found.gains, trust if self.config.shrink else np.ones_like(trust))
        if self.config.control == "reversed":
            gains = gains[:, ::-1]
        elif self.config.control == "shuffled":
            gains = gains[other_rows(len(gains), self.setup.seed)]
        ready = self.refreshes >= self.config.warm_up and trust.any()
        self.matrix = self.config.solve(gains, self.setup) if ready else static_matrix(self.setup)
        self.facts = {
            "curves": found.curves.tolist(),
            "curve_errors": found.errors.tolist(),
            "raw_curves": {
                name: raw_curves(curve, self.probes, self.setup.sigmas).tolist()
                for name, curve in curves.items()
            },
            "gains": gains.tolist(),
            "reliability": found.reliability.tolist(),
        }

    def _gap(self) -> np.ndarray:
        """(1 + B, K, P) correction; levels not yet completed lie between their neighbours."""
        gap = np.moveaxis(self.missing.mean(), 1, 0)
        each = [between(g, s, end=0.0) for g, s in zip(gap, self.missing.seen, strict=True)]
        return np.stack(each, axis=1)

    def _measure(self, every: np.ndarray, bound: np.ndarray) -> Measured:
        mean, variance = self.moments.mean()
        try:
            return measure(
                every[0],
                every[1:],
                self.probes,
                self.setup.sigmas,
                mean=mean,
                variance=variance,
                gain=self.config.gain,
                bound=bound,
            )
        except ValueError as error:
            raise ConfigError([f"credit.gain: {error}"]) from error

    def record(self, epoch: int) -> CreditRecord:
        """W as it stands, and what it was solved from."""
        return make_record("recast-online", self.setup, self.matrix, epoch, **self.facts)

    def state(self) -> dict[str, Any]:
        """All averages; JSON values, so that a resumed run goes on bit for bit."""
        return {
            "bound": self.bound.state(),
            "missing": self.missing.state(),
            "moments": self.moments.state(),
            "matrix": self.matrix.tolist(),
            "facts": self.facts,
            "probes": self.probes,
            "refreshes": self.refreshes,
            "corrections": self.corrections,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Put back what ``state`` gave."""
        for name in ("bound", "missing", "moments"):
            getattr(self, name).load_state(state[name])
        self.matrix = np.array(state["matrix"], dtype=np.float64)
        self.facts, self.probes = dict(state["facts"]), list(state["probes"])
        self.refreshes, self.corrections = int(state["refreshes"]), int(state["corrections"])


def _stack(found: Estimate) -> np.ndarray:
    """(1 + B, K, P)."""
    return np.concatenate([found.information[None], found.replicates])


def build(config: OnlineConfig, setup: CreditSetup) -> OnlineCredit:
    """Online credit, static until it has seen enough."""
    config.temperatures(setup.rewards)  # names wrong rewards now rather than at the refresh
    return OnlineCredit(config, setup)


CREDIT = CreditSpec(
    "recast-online", OnlineConfig, build, summary="W from gains that follow the policy"
)
