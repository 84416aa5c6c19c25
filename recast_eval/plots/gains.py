"""The gain of each step: increments of discriminability, with the mean of a row as 1."""

from recast_eval.plots.base import PlotSpec
from recast_eval.plots.lines import Lines, draw_lines, lines_alt, lines_size, lines_table

PLOT: PlotSpec[Lines] = PlotSpec(
    name="gains",
    title="Gains per step",
    read=(
        "How much a reward becomes decided during each step; the credit W follows these "
        "shapes. A peak on the left is decided early, on the right late. Each row averages 1."
    ),
    draw=draw_lines,
    table=lines_table,
    alt=lines_alt,
    size=lines_size,
)
