"""Win rates of pairs of models, ties as half, one row a pair and axis."""

from recast_eval.plots.base import PlotSpec
from recast_eval.plots.intervals import (
    Intervals,
    draw_intervals,
    intervals_alt,
    intervals_size,
    intervals_table,
)

PLOT: PlotSpec[Intervals] = PlotSpec(
    name="win-rates",
    title="Win rates",
    read=(
        "Share of pairs that the first-named model wins, ties and flips as half, with its 95 % "
        "interval. A bar that crosses 0.5 says: cannot be told apart; so does a hollow dot, "
        "which counts all comparisons."
    ),
    draw=draw_intervals,
    table=intervals_table,
    alt=intervals_alt,
    size=intervals_size,
)
