"""Differences between two models on the same prompts, in units of their spread."""

from recast_eval.plots.base import PlotSpec
from recast_eval.plots.intervals import (
    Intervals,
    draw_intervals,
    intervals_alt,
    intervals_size,
    intervals_table,
)

PLOT: PlotSpec[Intervals] = PlotSpec(
    name="paired-differences",
    title="Differences on the same prompts",
    read=(
        "Mean difference on the same prompts with its 95 % interval; right of the line the "
        "first-named model scores higher. Each scorer is divided by the standard deviation (SD) "
        "of its own prompt means, so that rows can be compared. A hollow dot is not beyond "
        "chance once all comparisons are counted, even if its own bar is clear of the line."
    ),
    draw=draw_intervals,
    table=intervals_table,
    alt=intervals_alt,
    size=intervals_size,
)
