"""Ratings of several models from pairwise outcomes: Davidson's tie model, order effect, ridge."""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from recast_eval.stats.battles import Battles, tabulate, utilities
from recast_eval.stats.checks import Ids, fraction
from recast_eval.stats.choice import Profile
from recast_eval.stats.fitted import Fitted
from recast_eval.stats.intervals import Bounded, t_critical
from recast_eval.stats.letters import alike_groups, rank_ranges
from recast_eval.stats.multiple import holm


@dataclass(frozen=True, slots=True)
class Difference:
    """Rating of ``first`` minus rating of ``second``, in log-odds."""

    first: Hashable
    second: Hashable
    value: Bounded
    p: float
    """Two-sided; 1 where the data cannot place the difference."""
    p_holm: float
    """Adjusted over all pairs of all groups."""


@dataclass(frozen=True, slots=True)
class Davidson:
    """Ratings in log-odds, and how far the data carry them."""

    ratings: dict[Hashable, Bounded]
    """Zero-sum over the group's largest set of models that all win and lose among each other."""
    order: Bounded
    """Log-odds that the first slot adds; 0 and ``fixed`` where no pair was seen in both orders."""
    tie: Bounded
    """log nu; a tie between equals has chance nu / (2 + nu)."""
    groups: tuple[tuple[Hashable, ...], ...]
    """Models linked by comparisons, best first. Ratings of two groups have no common scale."""
    differences: tuple[Difference, ...]
    """Every pair within a group, the higher rated first."""
    ranks: dict[Hashable, tuple[int, int]]
    """Best and worst rank within the group that the adjusted differences leave."""
    alike: tuple[tuple[Hashable, ...], ...]
    """Largest sets of models that cannot be told apart at ``level``."""
    n_comparisons: int
    n_prompts: int
    ridge: float
    level: float
    gradient: float
    """Largest entry of the penalised gradient at the optimum: shown, since it must be 0."""

    @property
    def order_odds(self) -> Bounded:
        """How the first slot multiplies the odds of winning: exp(order)."""
        ends = np.exp([self.order.estimate, self.order.low, self.order.high])
        return Bounded(float(ends[0]), float(ends[1]), float(ends[2]), self.order.kind)


def davidson(
    first: Ids,
    second: Ids,
    outcome: ArrayLike,
    prompts: Ids | None = None,
    *,
    level: float = 0.95,
    ridge: float = 0.01,
    order_effect: bool = True,
    rng: np.random.Generator | None = None,
    resamples: int = 1000,
) -> Davidson:
    """Rate models from pairwise outcomes with ties and an order effect.

    The first slot wins, loses or ties with chances in proportion to
    ``exp(r_first + order)``, ``exp(r_second)`` and ``nu exp((r_first + r_second) / 2)``.
    Intervals are cluster-robust by prompt, and each contrast is judged by the prompts that carry
    it: residuals are corrected for what the fit took from them, Student's t has the degrees of
    freedom that they leave, and no error is below that of independent comparisons. With ``rng``
    they are percentiles of a bootstrap over prompts, where the prompts behind a number are as good
    as 40 that carry alike. A rating that the likelihood lets run away, such as that of a model that
    never lost, is the ridge's and not the data's: it comes as a bound, the end of its
    profile-likelihood interval by Student's t, with each prompt counted once for a pair of models.
    What a single prompt carries is ``open``: one prompt cannot say how far prompts differ.

    Args:
        first: Model shown first, a comparison each; any hashable id.
        second: Model shown second.
        outcome: 1 the first won, 0 the second won, 0.5 a tie.
        prompts: Prompt id of each comparison; without it each is a prompt of its own.
        level: Coverage, in (0, 1).
        ridge: Gaussian prior precision of every parameter, > 0; weaker than one comparison.
        order_effect: Estimate what the slot adds. It is held at 0 anyway unless some pair was
            seen in both orders. Switch it off for verdicts that already join both orders.
        rng: Draws prompts for bootstrap intervals.
        resamples: Bootstrap draws.

    Returns:
        Ratings, order effect and tie parameter, each with an interval or a bound.

    Raises:
        ValueError: Nothing to compare, lengths differ, a model meets itself, or an outcome,
            level or ridge out of range.
        ArithmeticError: The optimum was not reached.

    References:
        Davidson 1970 (ties); Davidson and Beaver 1977 (order); Bradley and Terry 1952; Ford 1957
        (when ratings are finite); Bell and McCaffrey 2002 (errors, degrees of freedom).
        Here with a ridge, and clustered by prompt.
    """
    level = fraction(level, "level")
    if not (np.isfinite(ridge) and ridge > 0):
        raise ValueError(f"ridge is a finite number above 0, got {ridge!r}")
    data = tabulate(first, second, outcome, prompts, order_effect)
    fitted = Fitted(data, level, ridge, rng, resamples)
    return _assemble(data, fitted)


def _assemble(data: Battles, fitted: Fitted) -> Davidson:
    many = len(data.models)
    size = data.features.shape[2]
    unit = np.eye(many, size)
    ratings = {}
    for number, reference in enumerate(fitted.references()):
        for model in np.flatnonzero(data.component == number):
            function = unit[model] - unit[reference].mean(axis=0)
            ratings[data.models[model]] = fitted.bounded(function)
    order = sorted(range(many), key=lambda m: -fitted.best[m])
    pairs = [
        (a, b)
        for n, a in enumerate(order)
        for b in order[n + 1 :]
        if data.component[a] == data.component[b]
    ]
    raw = [fitted.p_value(unit[a] - unit[b]) for a, b in pairs]
    adjusted = holm(raw)
    better = np.zeros((many, many), dtype=bool)
    different = data.component[:, None] != data.component[None, :]
    for (a, b), p in zip(pairs, adjusted, strict=True):
        better[a, b] = p < 1 - fitted.level
        different[a, b] = different[b, a] = better[a, b]
    groups = [[m for m in order if data.component[m] == c] for c in range(max(data.component) + 1)]
    groups.sort(key=len, reverse=True)
    ranks = rank_ranges(better, data.component.astype(float))
    return Davidson(
        ratings={data.models[m]: ratings[data.models[m]] for g in groups for m in g},
        order=_order(data, fitted),
        tie=_tie(data, fitted),
        groups=tuple(tuple(data.models[m] for m in g) for g in groups),
        differences=tuple(
            Difference(
                data.models[a],
                data.models[b],
                fitted.bounded(unit[a] - unit[b]),
                raw[n],
                float(adjusted[n]),
            )
            for n, (a, b) in enumerate(pairs)
        ),
        ranks={data.models[m]: ranks[m] for m in range(many)},
        alike=tuple(
            tuple(data.models[m] for m in order if m in group) for group in alike_groups(different)
        ),
        n_comparisons=int(data.counts.sum()),
        n_prompts=fitted.prompts,
        ridge=fitted.ridge,
        level=fitted.level,
        gradient=fitted.gradient,
    )


def _order(data: Battles, fitted: Fitted) -> Bounded:
    if not data.has_order:
        return Bounded(0.0, 0.0, 0.0, "fixed")
    return fitted.bounded(np.eye(data.features.shape[2])[len(data.models)])


def _tie(data: Battles, fitted: Fitted) -> Bounded:
    if data.has_tie:
        return fitted.bounded(np.eye(data.features.shape[2])[-1])
    if fitted.prompts < 2:
        return Bounded(0.0, -np.inf, np.inf, "open")
    features = utilities(data.cells, len(data.models), has_order=data.has_order, has_tie=True)
    units = np.concatenate([fitted.units, np.zeros((len(data.cells), 1))], axis=1)
    profile = Profile(features, units, np.eye(features.shape[2])[-1])
    high = profile.end(1, t_critical(fitted.level, fitted.prompts) ** 2)
    if np.isinf(high):  # models so far apart that no tie was ever likely
        return Bounded(0.0, -np.inf, np.inf, "open")
    return Bounded(high, -np.inf, high, "at most")
