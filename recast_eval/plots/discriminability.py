"""Curves of D against noise level, with bands."""

from recast_eval.plots.base import PlotSpec
from recast_eval.plots.lines import Lines, draw_lines, lines_alt, lines_size, lines_table

PLOT: PlotSpec[Lines] = PlotSpec(
    name="discriminability",
    title="Discriminability curves",
    read=(
        "How much of what a reward will say about the finished picture can be told at each "
        "noise level: 0 at pure noise, rising towards the clean end on the right. A curve "
        "that rises early belongs to a reward that is decided early."
    ),
    draw=draw_lines,
    table=lines_table,
    alt=lines_alt,
    size=lines_size,
)
