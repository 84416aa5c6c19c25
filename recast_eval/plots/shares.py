"""Stacked shares: how verdicts ended, where credit went."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from recast_eval.plots.base import (
    ON_SERIES,
    Cell,
    PlotSpec,
    Table,
    fit,
    place_legend,
    series_color,
)


class Shares(NamedTuple):
    """Parts (columns) of wholes (rows), as counts or amounts."""

    rows: tuple[str, ...]
    parts: tuple[str, ...]
    amounts: np.ndarray
    """(rows, parts) >= 0."""
    unit: str


def shares_info(
    rows: Mapping[str, Mapping[str, float]], parts: Sequence[str], *, unit: str
) -> Shares:
    """Gather amounts; a part that a row lacks is 0.

    Raises:
        ValueError: An amount is negative.
    """
    amounts = np.array([[float(row.get(p, 0.0)) for p in parts] for row in rows.values()])
    amounts = amounts.reshape(len(rows), len(parts))
    if (amounts < 0).any():
        raise ValueError(f"amounts must be >= 0, got {amounts.min()}")
    return Shares(tuple(rows), tuple(parts), amounts, unit)


def draw_shares(axes: Axes, info: Shares) -> None:
    """Bars from 0 to 1; parts in the order of the key."""
    total = info.amounts.sum(axis=1, keepdims=True)
    share = np.divide(info.amounts, total, out=np.zeros_like(info.amounts), where=total > 0)
    left = np.zeros(len(info.rows))
    handles = []
    for index, part in enumerate(info.parts):
        look: dict[str, Any] = {"color": series_color(index), "alpha": 0.85}
        bars = axes.barh(range(len(info.rows)), share[:, index], left=left, height=0.62, **look)
        for bar, value in zip(bars, share[:, index], strict=True):
            if value >= 0.08:
                axes.annotate(
                    f"{value:.0%}",
                    (bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height() / 2),
                    ha="center",
                    va="center",
                    fontsize=8,
                    color=ON_SERIES,
                )
        left = left + share[:, index]
        handles.append(Patch(**look, label=part))
    axes.set_yticks(range(len(info.rows)), [fit(r, 30) for r in info.rows])
    axes.set(xlim=(0, 1), ylim=(len(info.rows) - 0.4, -0.6), xlabel=f"share of {info.unit}")
    axes.grid(axis="y", visible=False)
    place_legend(axes, handles, info.parts)


def shares_table(info: Shares) -> Table:
    """One row a whole, with its amounts."""
    rows: list[tuple[Cell, ...]] = [
        (name, *(float(v) for v in row), float(row.sum()))
        for name, row in zip(info.rows, info.amounts, strict=True)
    ]
    return Table(("row", *info.parts, f"all {info.unit}"), tuple(rows))


def shares_alt(info: Shares) -> str:
    """Say the largest part of each row."""
    parts = [
        f"{name}: mostly {info.parts[int(row.argmax())]} ({row.max() / row.sum():.0%})"
        for name, row in zip(info.rows, info.amounts, strict=True)
        if row.sum() > 0
    ]
    return f"Shares of {info.unit}. " + ("; ".join(parts) or "No data") + "."


def shares_size(info: Shares) -> tuple[float, float]:
    """Height by rows, and room for the key."""
    return 4.6, 1.55 + 0.34 * len(info.rows) + 0.22 * -(-len(info.parts) // 2)


PLOT = PlotSpec(
    name="shares",
    title="Shares",
    read="Each bar is a whole and its pieces add up to it.",
    draw=draw_shares,
    table=shares_table,
    alt=shares_alt,
    size=shares_size,
)
