"""Scores against the budget of a reward, one line a method."""

from recast_eval.plots.base import PlotSpec
from recast_eval.plots.lines import Lines, draw_lines, lines_alt, lines_size, lines_table

PLOT: PlotSpec[Lines] = PlotSpec(
    name="budget-sweep",
    title="Against the budget",
    read=(
        "Each line is a method. If budgets work, a score rises as the budget of its own "
        "reward rises; a flat line says that this reward does not answer to its budget."
    ),
    draw=draw_lines,
    table=lines_table,
    alt=lines_alt,
    size=lines_size,
)
