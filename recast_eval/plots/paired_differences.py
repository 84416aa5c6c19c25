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
        "Mean difference per prompt between the two models, with its interval clustered by "
        "prompt. Right of the line the first-named model is better; each scorer is divided by "
        "the standard deviation of its own prompt means, so that rows can be compared."
    ),
    draw=draw_intervals,
    table=intervals_table,
    alt=intervals_alt,
    size=intervals_size,
)
