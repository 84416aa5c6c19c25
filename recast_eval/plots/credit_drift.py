"""W over training: one reward's credit, epochs down and steps across."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm

from recast_eval.plots.base import Cell, PlotSpec, Table, number
from recast_eval.plots.credit_weights import hatch_missing


class CreditDrift(NamedTuple):
    """Multipliers of one reward each time that W was set."""

    reward: str
    epochs: tuple[int, ...]
    sigmas: tuple[float, ...]
    multiplier: np.ndarray
    """(epochs, T) in units of the static share; NaN: no data."""


def credit_drift_info(
    reward: str,
    epochs: Sequence[int],
    sigmas: Sequence[float],
    rows: Sequence[Sequence[float]],
    budgets: Sequence[float],
    column_mass: Sequence[float] | None = None,
) -> CreditDrift:
    """Express a reward's row of W at each refresh in units of the static share.

    Args:
        reward: Its name.
        epochs: When W was set.
        sigmas: (T,) or (T+1,) noise levels, scheduler order.
        rows: A (T,) row of W for each epoch.
        budgets: The reward's budget at each epoch.
        column_mass: (T,); 1/T if not given.

    Raises:
        ValueError: Rows, epochs and budgets differ in number.
    """
    weights = np.asarray(rows, dtype=float)
    if not len(epochs) == len(budgets) == len(weights) or weights.ndim != 2:
        raise ValueError(
            f"{reward}: {len(epochs)} epochs, {len(budgets)} budgets, rows of {weights.shape}"
        )
    steps = weights.shape[1]
    mass = np.full(steps, 1 / steps) if column_mass is None else np.asarray(column_mass, float)
    static = np.asarray(budgets, float)[:, None] * mass[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        multiplier = np.where(static > 0, weights / static, np.nan)
    return CreditDrift(reward, tuple(epochs), tuple(sigmas[:steps]), multiplier)


def draw_credit_drift(axes: Axes, info: CreditDrift) -> None:
    """Epochs down, steps across, noise on the left."""
    values = np.ma.masked_invalid(info.multiplier)
    top = float(values.max()) if values.count() else 2.0
    sns.heatmap(
        info.multiplier,
        ax=axes,
        mask=~np.isfinite(info.multiplier),
        cmap="PuOr_r",
        vmin=0.0,  # else seaborn looks for them among missing cells
        vmax=max(2.0, top),
        norm=TwoSlopeNorm(1.0, 0.0, max(2.0, top)),
        cbar_kws={"label": "times the static share"},
        xticklabels=False,
        yticklabels=False,
    )
    hatch_missing(axes, info.multiplier)
    steps, rows = len(info.sigmas), len(info.epochs)
    across = range(0, steps, max(1, -(-steps // 10)))
    down = range(0, rows, max(1, -(-rows // 6)))
    axes.set_xticks([j + 0.5 for j in across], [f"{info.sigmas[j]:.2f}" for j in across])
    axes.set_yticks([i + 0.5 for i in down], [str(info.epochs[i]) for i in down], rotation=0)
    axes.set(xlabel="noise level of the step (noisy to clean)", ylabel="epoch")
    axes.grid(False)


def credit_drift_table(info: CreditDrift) -> Table:
    """One row a cell."""
    rows: list[tuple[Cell, ...]] = [
        (info.reward, epoch, j, info.sigmas[j], number(info.multiplier[i, j]))
        for i, epoch in enumerate(info.epochs)
        for j in range(len(info.sigmas))
    ]
    return Table(("reward", "epoch", "step", "sigma", "times static share"), tuple(rows))


def credit_drift_alt(info: CreditDrift) -> str:
    """Say where the peak was first and last."""
    known = [i for i in range(len(info.epochs)) if np.isfinite(info.multiplier[i]).any()]
    if not known:
        return f"Heat map of the credit of {info.reward} over training. No data."
    first, last = (
        info.sigmas[int(np.nanargmax(info.multiplier[i]))] for i in (known[0], known[-1])
    )
    return (
        f"Heat map of the credit of {info.reward} over training: its peak lies at noise level "
        f"{first:.2f} at first and {last:.2f} at last."
    )


PLOT = PlotSpec(
    name="credit-drift",
    title="Credit over training",
    read=(
        "Each line of cells is W as it was set at that epoch. Steady columns say that the credit "
        "settled; wandering ones say that its gains are noise."
    ),
    draw=draw_credit_drift,
    table=credit_drift_table,
    alt=credit_drift_alt,
    size=lambda info: (4.9, 1.9 + 0.12 * min(14, len(info.epochs))),
)
