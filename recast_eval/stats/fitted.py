"""A fitted Davidson model, and what the data say about any linear function of it."""

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from recast_eval.stats.battles import Battles
from recast_eval.stats.choice import (
    Profile,
    Recession,
    derivatives,
    fit,
    probabilities,
)
from recast_eval.stats.clustered import Clustered, Spread
from recast_eval.stats.intervals import Bounded, Kind, t_quantile
from recast_eval.stats.winrate import FEW_PROMPTS

_BATCH = 2_000_000
"""Numbers held at once while refitting bootstrap draws."""


class Fitted:
    """The optimum, and what is known about any linear function of it."""

    def __init__(
        self,
        data: Battles,
        level: float,
        ridge: float,
        rng: np.random.Generator | None,
        resamples: int,
    ) -> None:
        self.data, self.level, self.ridge = data, level, ridge
        total = data.counts.sum(axis=0)
        self.prompts = len(data.counts)
        self.best = fit(data.features, total[None], ridge=ridge)[0]
        at = derivatives(data.features, total[None], self.best[None], ridge)
        self.gradient = float(np.abs(at.gradient).max())
        self.recession = Recession(data.features, total)
        self._lone = data.carried_by_one()
        self._home = self._homes()
        self._directions: dict[bytes, tuple[bool, bool]] = {}
        self._profiles: dict[bytes, Profile] = {}
        shares = data.shares
        self.units = shares.sum(axis=0)
        by_unit = derivatives(data.features, self.units[None], self.best[None], ridge)
        self.unit_covariance = np.linalg.inv(by_unit.information[0])
        self._prompts = self._clustered(data.counts, self.best)
        self._behind_bounds = self._clustered(shares, np.zeros_like(self.best))
        self.draws = None if rng is None else self._bootstrap(rng, resamples)

    def _clustered(
        self, counts: Float[np.ndarray, "prompt cell outcome"], at: Float[np.ndarray, " k"]
    ) -> Clustered:
        totals = counts.sum(axis=2)
        residuals = counts - totals[:, :, None] * probabilities(self.data.features, at[None])
        scores = np.einsum("pco,cok->pk", residuals, self.data.features, optimize=True)
        return Clustered(self.data.features, totals, scores, at, self.data.levels)

    def _bootstrap(self, rng: np.random.Generator, resamples: int) -> Float[np.ndarray, "draw k"]:
        flat = self.data.counts.reshape(self.prompts, -1)
        chances = np.full(self.prompts, 1 / self.prompts)
        weights = rng.multinomial(self.prompts, chances, size=resamples).astype(float)
        size = max(1, _BATCH // self.data.features.size)
        rows = (resamples, *self.data.counts.shape[1:])
        counts = (weights @ flat).reshape(rows)
        parts = [
            fit(self.data.features, counts[k : k + size], ridge=self.ridge, start=self.best[None])
            for k in range(0, resamples, size)
        ]
        return np.concatenate(parts)

    def bounded(self, function: Float[np.ndarray, " k"]) -> Bounded:
        """The function's estimate with its interval, or the ends that the data give it."""
        value = float(self.best @ function)
        kind = self.kind(function)
        if kind == "open":
            return Bounded(value, -np.inf, np.inf, kind)
        if kind == "interval":
            return Bounded(value, *self._ends(function, value))
        profile = self._profile(function)
        threshold = t_quantile(self.level, self._freedom_of_bound(function)) ** 2
        if kind == "at least":
            return Bounded(value, profile.end(-1, threshold), np.inf, kind)
        return Bounded(value, -np.inf, profile.end(1, threshold), kind)

    def kind(self, function: Float[np.ndarray, " k"]) -> Kind:
        """Which ends the data give the function: none if a single prompt stands behind it."""
        down, up = self._unbounded(function)
        if (down and up) or self._by_one_prompt(function):
            return "open"
        return "at least" if up else "at most" if down else "interval"

    def _by_one_prompt(self, function: Float[np.ndarray, " k"]) -> bool:
        return bool((np.abs(function @ self._lone) > 1e-6).any())

    def _freedom_of_bound(self, function: Float[np.ndarray, " k"]) -> float:
        """Prompts behind a bound, less one: by how they carry it, were all models equal.

        The deviance of a bound is a chi-square only with many prompts: two equal models that met
        on three prompts would be told apart in a quarter of all tries, as 3 of 3 has a deviance
        of 4.16. Its root is held against Student's t instead. For P wins of P this is
        nearly the exact sign test: p .18, .10, .058, .035 for P = 3 to 6 (exact .25, .125, .0625,
        .031).
        """
        return self._behind_bounds.spread(function).freedom

    def references(self) -> list[Int[np.ndarray, " model"]]:
        """For each group, the models whose mean rating is 0.

        The largest set among which the data place every difference, if it is the only one of
        its size: a model that never won would else drag the zero along with its own rating.
        """
        found = []
        for number in range(int(self.data.component.max()) + 1):
            members = np.flatnonzero(self.data.component == number)
            sizes = np.bincount(self._home[members])
            largest = np.flatnonzero(sizes == sizes.max())
            alone = len(largest) == 1
            found.append(members[self._home[members] == largest[0]] if alone else members)
        return found

    def _homes(self) -> Int[np.ndarray, " model"]:
        """For each model, the first one from which the data place its difference."""
        many = len(self.data.models)
        unit = np.eye(many, self.data.features.shape[2])
        home = np.arange(many)
        for model in range(many):
            kin = self.data.component[:model] == self.data.component[model]
            for other in np.unique(home[:model][kin]):
                gap = unit[other] - unit[model]
                if not self._by_one_prompt(gap) and not any(self.recession.unbounded(gap)):
                    home[model] = other
                    break
        return home

    def _unbounded(self, function: Float[np.ndarray, " k"]) -> tuple[bool, bool]:
        """Whether it may go (down, up) for ever; models of one home go together."""
        many = len(self._home)
        joint = np.zeros_like(function)
        np.add.at(joint, self._home, function[:many])
        joint[many:] = function[many:]
        joint = np.round(joint, 9) + 0.0  # one key for one function, without -0
        key = joint.tobytes()
        if key not in self._directions:
            self._directions[key] = (
                self.recession.unbounded(joint) if joint.any() else (False, False)
            )
        return self._directions[key]

    def _profile(self, function: Float[np.ndarray, " k"]) -> Profile:
        key = function.tobytes()
        if key not in self._profiles:
            self._profiles[key] = Profile(self.data.features, self.units, function)
        return self._profiles[key]

    def error(self, function: Float[np.ndarray, " k"]) -> float:
        """Standard error of the function, by prompt; see ``Clustered`` for the corrections.

        Never below that of independent comparisons: images of one prompt are alike or they are
        not, so prompts that differ by less than chance allows do so by luck, which is common
        where few prompts carry a contrast (two prompts that both end 3:1 differ by nothing).
        Where prompts do not differ at all, it is that of one comparison a prompt.
        """
        return self._error(function, self._prompts.spread(function))

    def _error(self, function: Float[np.ndarray, " k"], spread: Spread) -> float:
        if spread.robust > 1e-9 * spread.independent:
            return float(np.sqrt(max(spread.robust, spread.independent)))
        return float(np.sqrt(function @ self.unit_covariance @ function))

    def _ends(self, function: Float[np.ndarray, " k"], value: float) -> tuple[float, float]:
        spread = self._prompts.spread(function)
        half = t_quantile(self.level, spread.freedom) * self._error(function, spread)
        if self.draws is not None and spread.freedom + 1 >= FEW_PROMPTS:
            tail = (1 - self.level) / 2
            drawn = np.quantile(self.draws @ function, [tail, 1 - tail])
            if np.ptp(drawn) > 1e-9 * half:  # draws without spread show no uncertainty
                return float(drawn[0]), float(drawn[1])
        return value - half, value + half

    def p_value(self, function: Float[np.ndarray, " k"]) -> float:
        """Two-sided p-value of "the function is 0"."""
        kind = self.kind(function)
        if kind == "open":
            return 1.0
        if kind == "interval":
            spread = self._prompts.spread(function)
            statistic = abs(float(self.best @ function)) / self._error(function, spread)
            return float(2 * stats.t.sf(statistic, spread.freedom))
        root = np.sqrt(self._profile(function).deviance(0.0))
        return float(2 * stats.t.sf(root, self._freedom_of_bound(function)))
