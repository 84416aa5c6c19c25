"""Points with names and error bars: trade-offs between two goods."""

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from recast_eval.plots.base import (
    MARKERS,
    Cell,
    PlotSpec,
    Table,
    fit,
    number,
    place_legend,
    series_color,
)


class Point(NamedTuple):
    """One thing in the plane."""

    name: str
    x: float
    y: float
    group: str = ""
    x_error: float | None = None
    """Half-width of its interval."""
    y_error: float | None = None


class Points(NamedTuple):
    """All that is drawn; ``front`` holds the indices of what nothing else beats."""

    points: tuple[Point, ...]
    x_label: str
    y_label: str
    front: tuple[int, ...] = ()
    cross: tuple[float, float] | None = None
    """Dotted lines at these x and y."""


def pareto_front(points: Sequence[Point]) -> tuple[int, ...]:
    """Indices of points that no other point beats in both x and y, by rising x.

    Both are better when larger. Equal points are all on the front; NaN never is.
    """
    found = []
    for i, a in enumerate(points):
        if not (np.isfinite(a.x) and np.isfinite(a.y)):
            continue
        beaten = any(
            b.x >= a.x and b.y >= a.y and (b.x > a.x or b.y > a.y) for b in points if b is not a
        )
        if not beaten:
            found.append(i)
    return tuple(sorted(found, key=lambda i: (points[i].x, -points[i].y)))


def points_info(
    points: Sequence[Point],
    *,
    x_label: str,
    y_label: str,
    front: bool = False,
    cross: tuple[float, float] | None = None,
) -> Points:
    """Gather points; the front is found if asked for."""
    return Points(tuple(points), x_label, y_label, pareto_front(points) if front else (), cross)


def draw_points(axes: Axes, info: Points) -> None:
    """Draw onto the caller's axes; a group has one colour and marker."""
    muted = mpl.rcParams["axes.edgecolor"]
    if info.cross is not None:
        axes.axvline(info.cross[0], linestyle=":", linewidth=1, color=muted)
        axes.axhline(info.cross[1], linestyle=":", linewidth=1, color=muted)
    if len(info.front) > 1:
        front = [info.points[i] for i in info.front]
        axes.step(
            [p.x for p in front],
            [p.y for p in front],
            where="pre",
            color=muted,
            linewidth=1,
            linestyle="--",
        )
    groups = list(dict.fromkeys(p.group for p in info.points))
    for point in info.points:
        index = groups.index(point.group)
        axes.errorbar(
            [point.x],
            [point.y],
            xerr=None if point.x_error is None else [point.x_error],
            yerr=None if point.y_error is None else [point.y_error],
            color=series_color(index),
            marker=MARKERS[index % len(MARKERS)],
            markersize=6,
            elinewidth=1,
            linestyle="none",
        )
    axes.margins(0.14)
    axes.set(xlabel=fit(info.x_label, 48), ylabel=fit(info.y_label, 40))
    if len(info.points) <= 12:
        _name_points(axes, info.points)
    handles = [
        Line2D([], [], color=series_color(i), marker=MARKERS[i % len(MARKERS)], linestyle="none")
        for i in range(len(groups))
    ]
    place_legend(axes, handles, groups)


def _name_points(axes: Axes, points: Sequence[Point]) -> None:
    """Write each name beside its point, where it covers the fewest others."""
    shown = [p for p in points if np.isfinite(p.x) and np.isfinite(p.y)]
    if not shown:
        return
    pixels = axes.transData.transform([(p.x, p.y) for p in shown])
    size = 8.5
    names = [fit(p.name, 18) for p in shown]
    places = label_places(
        pixels * 72.0 / axes.figure.dpi, [0.55 * size * len(n) for n in names], size
    )
    for name, point, (right, up) in zip(names, shown, places, strict=True):
        axes.annotate(
            name,
            (point.x, point.y),
            xytext=(5 * right, 4 * up),
            textcoords="offset points",
            ha="left" if right > 0 else "right",
            va="bottom" if up > 0 else "top",
            fontsize=size,
        )


def label_places(
    anchors: npt.ArrayLike, widths: Sequence[float], height: float
) -> list[tuple[int, int]]:
    """Which corner of its anchor each label takes: right and up, unless another place is freer.

    Args:
        anchors: (N, 2) places in points, y upwards.
        widths: Of the N labels, in points.
        height: Of all.

    Returns:
        (+-1, +-1) for each: right or left, above or below.
    """
    dots = [(x - 3, y - 3, x + 3, y + 3) for x, y in np.asarray(anchors, dtype=float)]
    taken: list[tuple[float, float, float, float]] = []
    found = []
    for (x, y), width in zip(np.asarray(anchors, dtype=float), widths, strict=True):
        boxes = {}
        for right, up in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            left = x + 5 if right > 0 else x - 5 - width
            foot = y + 4 if up > 0 else y - 4 - height
            boxes[right, up] = (left, foot, left + width, foot + height)
        best = min(boxes, key=lambda place: sum(_shared(boxes[place], o) for o in taken + dots))
        taken.append(boxes[best])
        found.append(best)
    return found


def _shared(
    one: tuple[float, float, float, float], two: tuple[float, float, float, float]
) -> float:
    """Area that two boxes (left, bottom, right, top) have in common."""
    wide = min(one[2], two[2]) - max(one[0], two[0])
    high = min(one[3], two[3]) - max(one[1], two[1])
    return max(wide, 0.0) * max(high, 0.0)


def points_table(info: Points) -> Table:
    """One row a point."""
    rows: list[tuple[Cell, ...]] = [
        (
            p.name,
            p.group,
            number(p.x),
            number(p.y),
            number(p.x_error),
            number(p.y_error),
            "yes" if i in info.front else "no",
        )
        for i, p in enumerate(info.points)
    ]
    head = ("name", "group", info.x_label, info.y_label, "x +-", "y +-", "on the front")
    return Table(head, tuple(rows))


def points_alt(info: Points) -> str:
    """Name what is on the front, or how many points there are."""
    text = f"{len(info.points)} points: {info.y_label} against {info.x_label}."
    if info.front:
        text += f" On the front: {', '.join(info.points[i].name for i in info.front[:8])}."
    return text


PLOT = PlotSpec(
    name="scatter",
    title="Points",
    read="Each point is one model; up and right is better.",
    draw=draw_points,
    table=points_table,
    alt=points_alt,
    size=lambda info: (4.6, 3.4 + 0.2 * (len({p.group for p in info.points}) // 2)),
)
