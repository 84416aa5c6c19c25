"""Lines with bands: the plainest figure, used where x is ordered."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from recast_eval.plots.base import (
    Cell,
    PlotSpec,
    Table,
    fit,
    number,
    place_legend,
    series_style,
)


class Line(NamedTuple):
    """One series; NaN breaks the line and is said in the table."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None


class Lines(NamedTuple):
    """All that is drawn, in drawing order."""

    lines: tuple[Line, ...]
    x_label: str
    y_label: str
    reverse_x: bool = False
    """Noise levels run from 1 to 0."""
    zero: float | None = None
    """A dotted line at this y."""
    band: str = ""
    """What the band is; empty if there is none."""
    y_limits: tuple[float, float] | None = None
    """What lies outside is cut off in the picture, never in the table."""
    smooth: int = 1
    """Points of the running mean that is drawn over the faint points themselves; 1: none."""


def lines_info(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    x_label: str,
    y_label: str,
    errors: Mapping[str, Sequence[float]] | None = None,
    multiplier: float = 1.96,
    band: str = "",
    reverse_x: bool = False,
    zero: float | None = None,
    y_limits: tuple[float, float] | None = None,
    smooth: int = 1,
) -> Lines:
    """Gather series; a band is ``y`` minus and plus ``multiplier`` standard errors.

    Args:
        series: Name -> (x, y), equally long.
        x_label: Words and unit.
        y_label: Words and unit.
        errors: Name -> standard errors of y; a series may lack them.
        multiplier: Standard errors on each side.
        band: What the band is, in words.
        reverse_x: Draw large x on the left.
        zero: A dotted line at this y.
        y_limits: Cut the picture off here.
        smooth: Draw a centred running mean over so many points, and the points faintly.

    Raises:
        ValueError: A series is not as long as its x.
    """
    made = []
    for name, (x, y) in series.items():
        if len(x) != len(y):
            raise ValueError(f"{name}: {len(x)} x values, {len(y)} y values")
        error = (errors or {}).get(name)
        low = high = None
        if error is not None:
            value, half = np.asarray(y, float), multiplier * np.asarray(error, float)
            low, high = tuple(value - half), tuple(value + half)
        made.append(Line(name, tuple(map(float, x)), tuple(map(float, y)), low, high))
    return Lines(tuple(made), x_label, y_label, reverse_x, zero, band, y_limits, smooth)


def running_mean(values: Sequence[float], width: int) -> np.ndarray:
    """Centred mean of ``width`` neighbours, of fewer at the ends; NaN counts as missing."""
    found = np.asarray(values, float)
    known = np.isfinite(found)
    kernel = np.ones(min(width, max(1, len(found))))
    total = np.convolve(np.where(known, found, 0.0), kernel, mode="same")
    count = np.convolve(known.astype(float), kernel, mode="same")
    mean = np.full(len(found), np.nan)
    np.divide(total, count, out=mean, where=count > 0.5)
    return mean


def draw_lines(axes: Axes, info: Lines) -> None:
    """Draw onto the caller's axes; bands first, so that no line is hidden."""
    handles = []
    for index, line in enumerate(info.lines):
        style = series_style(index)
        if len(line.x) > 24:
            style["markevery"] = -(-len(line.x) // 12)
        if line.low is not None and line.high is not None:
            axes.fill_between(
                line.x, line.low, line.high, color=style["color"], alpha=0.16, linewidth=0
            )
        drawn: Sequence[float] = line.y
        if info.smooth > 1 and len(line.y) > info.smooth:
            axes.plot(line.x, line.y, color=style["color"], linewidth=0.9, alpha=0.35)
            drawn = running_mean(line.y, info.smooth).tolist()
        axes.plot(line.x, drawn, **style)
        handles.append(Line2D([], [], **style))
    if info.zero is not None:
        axes.axhline(info.zero, linestyle=":", color=mpl.rcParams["axes.edgecolor"], linewidth=1)
    axes.set(xlabel=fit(info.x_label, 48), ylabel=fit(info.y_label, 34))
    _ticks(axes, info)
    if info.y_limits is not None:
        axes.set_ylim(*info.y_limits)
    if info.reverse_x:
        axes.invert_xaxis()
    place_legend(axes, handles, [line.name for line in info.lines])


def _ticks(axes: Axes, info: Lines) -> None:
    """Whole steps at whole numbers; noise in the last digits does not fill the picture."""
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.get_major_formatter().set_useOffset(False)  # type: ignore[attr-defined]
    if all(x == int(x) for line in info.lines for x in line.x if np.isfinite(x)):
        axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    known = np.array([y for line in info.lines for y in line.y if np.isfinite(y)])
    if known.size and np.ptp(known) < 1e-4 * np.abs(known).max():
        middle = float(known.mean())
        axes.set_ylim(*sorted((0.5 * middle, 1.5 * middle)))


def lines_table(info: Lines) -> Table:
    """One row a point."""
    rows: list[tuple[Cell, ...]] = []
    for line in info.lines:
        mean = running_mean(line.y, info.smooth)
        for i, x in enumerate(line.x):
            low = number(line.low[i]) if line.low is not None else None
            high = number(line.high[i]) if line.high is not None else None
            extra = (number(mean[i]),) if info.smooth > 1 else ()
            rows.append((line.name, number(x), number(line.y[i]), low, high, *extra))
    head = ("series", info.x_label, info.y_label, "low", "high")
    return Table(head + (("running mean",) if info.smooth > 1 else ()), tuple(rows))


def lines_alt(info: Lines) -> str:
    """Say where each series begins and ends."""
    parts = []
    for line in info.lines[:8]:
        known = [(x, y) for x, y in zip(line.x, line.y, strict=True) if np.isfinite(y)]
        if known:
            (x0, y0), (x1, y1) = known[0], known[-1]
            parts.append(f"{line.name} goes from {y0:.3g} at {x0:.3g} to {y1:.3g} at {x1:.3g}")
    more = f"; {len(info.lines) - 8} more" if len(info.lines) > 8 else ""
    text = "; ".join(parts) or "no data"
    return f"Lines of {info.y_label} against {info.x_label}. {text}{more}."


def lines_size(info: Lines) -> tuple[float, float]:
    """Room for the key under the axes."""
    labels = [line.name for line in info.lines]
    if len(labels) < 2:
        return 4.6, 2.7
    rows = len(labels) if max(map(len, labels)) > 20 else -(-len(labels) // 2)
    return 4.6, 2.8 + 0.2 * rows


PLOT = PlotSpec(
    name="lines",
    title="Lines",
    read="Each line is one series; a shaded band, where there is one, is its uncertainty.",
    draw=draw_lines,
    table=lines_table,
    alt=lines_alt,
    size=lines_size,
)
