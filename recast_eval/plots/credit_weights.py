"""W as a heat map: whose credit is spent at which step."""

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.patches import Rectangle

from recast_eval.plots.base import NO_DATA, Cell, PlotSpec, Table, fit, number


class CreditWeights(NamedTuple):
    """A multiplier per reward and step: 1 is the static share, rows average 1."""

    rewards: tuple[str, ...]
    sigmas: tuple[float, ...]
    """(T,) source noise level of each step, noise first."""
    multiplier: np.ndarray
    """(K, T) mean over seeds of ``W[k, j] / (column_mass[j] * budget_k)``; NaN: no data."""
    spread: np.ndarray
    """(K, T) standard deviation over seeds; NaN where there is one seed."""
    seeds: int


def credit_weights_info(
    rewards: Sequence[str],
    sigmas: Sequence[float],
    weights: np.ndarray,
    budgets: Sequence[float],
    column_mass: Sequence[float] | None = None,
) -> CreditWeights:
    """Average W over seeds and express it in units of the static W.

    Args:
        rewards: K names.
        sigmas: (T,) or (T+1,) noise levels, scheduler order.
        weights: (S, K, T) one W a seed, for the same budgets.
        budgets: (K,) sum to 1.
        column_mass: (T,); 1/T a step if not given.

    Raises:
        ValueError: Shapes do not fit.
    """
    weights = np.asarray(weights, dtype=float)
    if weights.ndim != 3 or weights.shape[1] != len(rewards):
        raise ValueError(f"weights must be (S, {len(rewards)}, T), got {weights.shape}")
    steps = weights.shape[2]
    mass = np.full(steps, 1 / steps) if column_mass is None else np.asarray(column_mass, float)
    static = np.asarray(budgets, dtype=float)[:, None] * mass[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(static > 0, weights / static, np.nan)
    known = np.isfinite(each).sum(axis=0)
    total = np.nansum(each, axis=0)
    mean = np.divide(total, known, out=np.full(total.shape, np.nan), where=known > 0)
    square = np.nansum((each - mean) ** 2, axis=0)
    spread = np.full(mean.shape, np.nan)
    np.divide(square, known - 1, out=spread, where=known > 1)
    return CreditWeights(tuple(rewards), tuple(sigmas[:steps]), mean, np.sqrt(spread), len(weights))


def draw_credit_weights(axes: Axes, info: CreditWeights) -> None:
    """Rewards down, steps across, noise on the left; cells without data are hatched grey."""
    values = np.ma.masked_invalid(info.multiplier)
    top = float(values.max()) if values.count() else 2.0
    few = info.multiplier.shape[1] <= 12
    sns.heatmap(
        info.multiplier,
        ax=axes,
        mask=~np.isfinite(info.multiplier),
        cmap="PuOr_r",
        vmin=0.0,  # else seaborn looks for them among missing cells
        vmax=max(2.0, top),
        norm=TwoSlopeNorm(1.0, 0.0, max(2.0, top)),
        annot=few,
        fmt=".2f",
        annot_kws={"fontsize": 8},
        linewidths=0.4,
        linecolor=mpl.rcParams["grid.color"],
        cbar_kws={"label": "times the static share"},
        xticklabels=False,
        yticklabels=False,
    )
    hatch_missing(axes, info.multiplier)
    steps = len(info.sigmas)
    shown = range(0, steps, max(1, -(-steps // 10)))
    axes.set_xticks([j + 0.5 for j in shown], [f"{info.sigmas[j]:.2f}" for j in shown])
    axes.set_yticks(
        [k + 0.5 for k in range(len(info.rewards))], [fit(r) for r in info.rewards], rotation=0
    )
    axes.set(xlabel="noise level of the step (noisy to clean)")
    axes.grid(False)


def hatch_missing(axes: Axes, values: np.ndarray) -> None:
    """Cover each cell that is no number with hatched grey: never white, never zero's colour."""
    for row, column in np.argwhere(~np.isfinite(values)):
        axes.add_patch(
            Rectangle(
                (float(column), float(row)), 1, 1, facecolor=NO_DATA, hatch="////", linewidth=0
            )
        )


def credit_weights_table(info: CreditWeights) -> Table:
    """One row a cell: multiplier and its spread over seeds."""
    rows: list[tuple[Cell, ...]] = [
        (
            reward,
            j,
            info.sigmas[j],
            number(info.multiplier[k, j]),
            number(info.spread[k, j]),
            info.seeds,
        )
        for k, reward in enumerate(info.rewards)
        for j in range(len(info.sigmas))
    ]
    return Table(
        ("reward", "step", "sigma", "times static share", "SD over seeds", "seeds"), tuple(rows)
    )


def credit_weights_alt(info: CreditWeights) -> str:
    """Say for each reward where its largest multiplier lies."""
    parts = []
    for name, row in zip(info.rewards, info.multiplier, strict=True):
        if np.isfinite(row).any():
            j = int(np.nanargmax(row))
            parts.append(f"{name} peaks at noise level {info.sigmas[j]:.2f} with {row[j]:.2f}")
    return "Heat map of credit by reward and step. " + ("; ".join(parts) or "No data") + "."


PLOT = PlotSpec(
    name="credit-weights",
    title="Credit W over the denoising steps",
    read=(
        "Each cell says how many times its static share a reward gets at a step: 1 is the "
        "static baseline, above 1 (orange) the step listens more to this reward, below 1 "
        "(purple) less. Rows average 1 because budgets are kept. Noise is on the left."
    ),
    draw=draw_credit_weights,
    table=credit_weights_table,
    alt=credit_weights_alt,
    size=lambda info: (4.9, 1.5 + 0.36 * len(info.rewards)),
)
