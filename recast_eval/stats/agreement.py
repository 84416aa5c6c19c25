"""How far two or more judges agree beyond chance."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from recast_eval.stats.checks import Ids, clusters, fraction
from recast_eval.stats.intervals import Interval, Undefined, normal_critical, wilson
from recast_eval.stats.winrate import win_rate

Label = Hashable | None
"""What a judge said of an item; None where it said nothing."""
_MOST_UNDEFINED = 0.05
"""Share of bootstrap draws that may be undefined before the interval is."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of two judges over the items that both labelled."""

    raw: Interval | Undefined
    """Share of items with the same label, prompts weighing alike; Wilson's interval."""
    kappa: Interval | Undefined
    """Cohen's kappa: 1 full agreement, 0 as by chance."""
    alpha: Interval | Undefined
    """Krippendorff's alpha, nominal: the same scale, one label distribution for both."""
    n_items: int
    n_missing: int
    """Items that one or both left out: not counted as agreement or disagreement."""
    n_prompts: int


def agreement(
    first: Sequence[Label],
    second: Sequence[Label],
    prompts: Ids,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = 1000,
) -> Agreement:
    """Measure how two judges agree, with percentile intervals from resampled prompts.

    Args:
        first: The first judge's label of each item, None for a gap.
        second: The second judge's.
        prompts: The prompt id of each item.
        rng: Draws whole prompts.
        level: Coverage, in (0, 1).
        resamples: Bootstrap draws.

    Returns:
        Raw agreement, kappa and alpha; ``Undefined`` where nothing was labelled by both, or
        where all labels are equal and chance agreement is therefore full. With one prompt the
        interval is the widest possible.

    Raises:
        ValueError: Lengths differ or a prompt id is missing.

    References:
        Cohen 1960; Krippendorff 2011, Computing Krippendorff's alpha-reliability.
    """
    if len(first) != len(second):
        raise ValueError(f"judges label the same items, got {len(first)} and {len(second)}")
    level = fraction(level, "level")
    codes = clusters(prompts, len(first))
    both = [i for i in range(len(first)) if first[i] is not None and second[i] is not None]
    missing = len(first) - len(both)
    if not both:
        nothing = Undefined("no item was labelled by both judges")
        return Agreement(nothing, nothing, nothing, 0, missing, 0)
    names: dict[Label, int] = {}
    one = [names.setdefault(first[i], len(names)) for i in both]
    two = [names.setdefault(second[i], len(names)) for i in both]
    used, prompt = np.unique(codes[both], return_inverse=True)
    tables = np.zeros((len(used), len(names), len(names)))
    np.add.at(tables, (prompt, np.array(one), np.array(two)), 1)
    weights = rng.multinomial(len(used), np.full(len(used), 1 / len(used)), size=resamples)

    def measure(statistic: Callable[[Tables], Values]) -> Interval | Undefined:
        return _with_interval(statistic, tables, weights, level)

    same = win_rate([float(a == b) for a, b in zip(one, two, strict=True)], prompt, level=level)
    raw = Interval(same.estimate, same.low, same.high)
    return Agreement(raw, measure(_kappa), measure(_alpha_of_two), len(both), missing, len(used))


Tables = Float[np.ndarray, "draw label label"]
Values = Float[np.ndarray, " draw"]


def _with_interval(
    statistic: Callable[[Tables], Values],
    tables: Float[np.ndarray, "prompt label label"],
    weights: Int[np.ndarray, "draw prompt"],
    level: float,
) -> Interval | Undefined:
    value = float(statistic(tables.sum(axis=0, keepdims=True))[0])
    if np.isnan(value):
        return Undefined("all labels are equal: agreement by chance is already full")
    if len(tables) == 1:
        return Interval(value, -1.0, 1.0)
    drawn = statistic(np.tensordot(weights, tables, axes=1))
    missing = np.isnan(drawn)
    if missing.mean() > _MOST_UNDEFINED:
        return Undefined(f"{value:.2f}, but {missing.mean():.0%} of resamples hold one label only")
    tail = (1 - level) / 2
    low, high = np.quantile(drawn[~missing], [tail, 1 - tail])
    if high - low < 1e-12:  # draws show no spread: agreement is full, or there is one pattern
        return Interval(value, _low_of_full(tables, level) if value == 1 else -1.0, 1.0)
    return Interval(value, float(low), float(high))


def _low_of_full(tables: Float[np.ndarray, "prompt label label"], level: float) -> float:
    """Where agreement beyond chance would be if Wilson's lower end were seen, not all of P."""
    shares = tables.sum(axis=(0, 1)) / tables.sum()
    seen = 1 - wilson(1.0, len(tables), normal_critical(level))[0]
    return max(-1.0, float(1 - seen / (1 - (shares**2).sum())))


def _kappa(tables: Tables) -> Values:
    total = tables.sum(axis=(1, 2))
    seen = np.trace(tables, axis1=1, axis2=2) / total
    chance = (tables.sum(axis=1) * tables.sum(axis=2)).sum(axis=1) / total**2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(chance > 1 - 1e-12, np.nan, (seen - chance) / (1 - chance))


def _alpha_of_two(tables: Tables) -> Values:
    return _alpha(tables + tables.transpose(0, 2, 1))


def _alpha(
    coincidences: Tables, distance: Float[np.ndarray, "label label"] | None = None
) -> Values:
    """Krippendorff's alpha from coincidences; nominal distance unless one is given."""
    labels = coincidences.shape[1]
    gap = 1 - np.eye(labels) if distance is None else distance
    sums = coincidences.sum(axis=1)
    total = sums.sum(axis=1)
    seen = (coincidences * gap).sum(axis=(1, 2))
    chance = np.einsum("ra,ab,rb->r", sums, gap, sums, optimize=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(chance <= 0, np.nan, 1 - (total - 1) * seen / chance)


def krippendorff_alpha(
    ratings: Sequence[Sequence[Label]],
    prompts: Ids,
    *,
    rng: np.random.Generator,
    metric: Literal["nominal", "interval"] = "nominal",
    level: float = 0.95,
    resamples: int = 1000,
) -> Interval | Undefined:
    """Measure how any number of judges agree, with gaps, beyond chance.

    Args:
        ratings: A row a judge, a label an item; None where the judge said nothing. Items with
            fewer than two labels tell nothing and are left out.
        prompts: The prompt id of each item.
        rng: Draws whole prompts.
        metric: ``nominal``, or ``interval`` for labels that are numbers.
        level: Coverage, in (0, 1).
        resamples: Bootstrap draws.

    Returns:
        Alpha with a percentile interval, or ``Undefined``.

    Raises:
        ValueError: Rows differ in length, a prompt id is missing, or an interval label is not
            a number.

    References:
        Krippendorff 2011, Computing Krippendorff's alpha-reliability.
    """
    level = fraction(level, "level")
    codes = clusters(prompts, len(ratings[0]) if ratings else 0)
    if any(len(row) != len(codes) for row in ratings):
        raise ValueError(f"a row has a label an item, got {[len(row) for row in ratings]}")
    columns = [[r[i] for r in ratings if r[i] is not None] for i in range(len(codes))]
    useful = [i for i, labels in enumerate(columns) if len(labels) > 1]
    if not useful:
        return Undefined("no item was labelled by two judges")
    names: dict[Label, int] = {}
    for i in useful:
        for label in columns[i]:
            names.setdefault(label, len(names))
    used, prompt = np.unique(codes[useful], return_inverse=True)
    tables = np.zeros((len(used), len(names), len(names)))
    for place, i in zip(prompt, useful, strict=True):
        counts = np.bincount([names[label] for label in columns[i]], minlength=len(names))
        tables[place] += (np.outer(counts, counts) - np.diag(counts)) / (len(columns[i]) - 1)
    gap = _squared_gaps(list(names)) if metric == "interval" else None
    weights = rng.multinomial(len(used), np.full(len(used), 1 / len(used)), size=resamples)
    return _with_interval(lambda t: _alpha(t, gap), tables, weights, level)


def _squared_gaps(labels: list[Label]) -> Float[np.ndarray, "label label"]:
    for label in labels:
        if not isinstance(label, int | float | np.number) or not np.isfinite(label):
            raise ValueError(f"an interval label is a finite number, got {label!r}")
    values = np.array(labels, dtype=np.float64)
    gaps: Float[np.ndarray, "label label"] = (values[:, None] - values[None, :]) ** 2
    return gaps
