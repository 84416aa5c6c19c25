"""Win rates by category of prompt: where a model is better, not only whether."""

from recast_eval.plots.base import PlotSpec
from recast_eval.plots.intervals import (
    Intervals,
    draw_intervals,
    intervals_alt,
    intervals_size,
    intervals_table,
)

PLOT: PlotSpec[Intervals] = PlotSpec(
    name="category-wins",
    title="Win rates by category",
    read=(
        "One row a category of prompts, with 95 % intervals. These are explorations: a hollow "
        "dot is not beyond chance once all categories are counted; in a hatched row nothing was "
        "judged."
    ),
    draw=draw_intervals,
    table=intervals_table,
    alt=intervals_alt,
    size=intervals_size,
)
