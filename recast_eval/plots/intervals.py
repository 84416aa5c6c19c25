"""Estimates with intervals, one row each: differences, win rates, categories."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from recast_eval.plots.base import (
    MARKERS,
    PAPER,
    Cell,
    PlotSpec,
    Table,
    fit,
    number,
    place_legend,
    series_color,
)

CLEAR: Final = 0.05
"""Adjusted p-values below it are beyond chance."""


class Row(NamedTuple):
    """One estimate. NaN is 'no data': the row stays, hatched, so that nothing vanishes."""

    name: str
    estimate: float
    low: float
    high: float
    group: str = ""
    """Rows of a group share colour and marker."""
    n_scored: int | None = None
    n_total: int | None = None
    p: float | None = None
    """Adjusted p-value, if a test was made."""


class Intervals(NamedTuple):
    """All that is drawn, in drawing order, top first."""

    rows: tuple[Row, ...]
    x_label: str
    reference: float
    """Where 'no difference' lies: 0 or 0.5."""
    limits: tuple[float, float] | None = None


def intervals_info(
    rows: Sequence[Row],
    *,
    x_label: str,
    reference: float = 0.0,
    limits: tuple[float, float] | None = None,
) -> Intervals:
    """Gather rows in the order given.

    Raises:
        ValueError: An interval does not hold its estimate.
    """
    for row in rows:
        if row.estimate == row.estimate and not row.low <= row.estimate <= row.high:
            raise ValueError(
                f"{row.name}: low <= estimate <= high must hold, "
                f"got {row.low}, {row.estimate}, {row.high}"
            )
    return Intervals(tuple(rows), x_label, reference, limits)


def draw_intervals(axes: Axes, info: Intervals) -> None:
    """A dot and a bar a row, the reference as a line; rows without data are hatched.

    A dot is hollow if the row's adjusted p says that it is not beyond chance.
    """
    groups = list(dict.fromkeys(row.group for row in info.rows))
    axes.axvline(info.reference, color=mpl.rcParams["axes.edgecolor"], linewidth=1)
    for y, row in enumerate(info.rows):
        index = groups.index(row.group)
        if row.estimate != row.estimate:
            axes.axhspan(
                y - 0.3, y + 0.3, facecolor="none", hatch="////", edgecolor="#9aa1a9", linewidth=0
            )
            continue
        color = series_color(index)
        axes.plot([row.low, row.high], [y, y], color=color, linewidth=2, solid_capstyle="butt")
        axes.plot(
            [row.estimate],
            [y],
            color=color,
            marker=MARKERS[index % len(MARKERS)],
            markersize=6,
            markerfacecolor=color if row.p is None or row.p < CLEAR else PAPER,
            linestyle="none",
        )
    axes.set_yticks(range(len(info.rows)), [fit(row.name, 30) for row in info.rows])
    axes.set(xlabel=fit(info.x_label, 48), ylim=(len(info.rows) - 0.4, -0.6))
    handles = [
        Line2D([], [], color=series_color(i), marker=MARKERS[i % len(MARKERS)], linewidth=2)
        for i in range(len(groups))
    ]
    place_legend(axes, handles, groups)
    if info.limits is not None:
        axes.set_xlim(*info.limits)
    axes.grid(axis="y", visible=False)


def intervals_table(info: Intervals) -> Table:
    """One row a row."""
    rows: list[tuple[Cell, ...]] = [
        (
            row.name,
            row.group,
            number(row.estimate),
            number(row.low),
            number(row.high),
            number(row.p),
            row.n_scored,
            row.n_total,
        )
        for row in info.rows
    ]
    head = ("row", "group", info.x_label, "low", "high", "adjusted p", "n scored", "n total")
    return Table(head, tuple(rows))


def intervals_alt(info: Intervals) -> str:
    """Say how many rows lie clear of the reference, and on which side."""
    above = [row.name for row in info.rows if row.low > info.reference]
    below = [row.name for row in info.rows if row.high < info.reference]
    text = f"{len(info.rows)} estimates of {info.x_label} with intervals; "
    text += f"{len(above)} lie wholly above {info.reference:g}, {len(below)} wholly below"
    return text + (f" (above: {', '.join(above[:6])})." if above else ".")


def intervals_size(info: Intervals) -> tuple[float, float]:
    """Height by rows."""
    keyed = 0.35 if len({row.group for row in info.rows}) > 1 else 0.0
    return 4.6, 0.9 + 0.3 * max(1, len(info.rows)) + keyed


PLOT = PlotSpec(
    name="intervals",
    title="Estimates with intervals",
    read=(
        "Each dot is an estimate and its bar the interval. A bar that crosses the line is "
        "compatible with no difference; a hatched row has no data."
    ),
    draw=draw_intervals,
    table=intervals_table,
    alt=intervals_alt,
    size=intervals_size,
)
