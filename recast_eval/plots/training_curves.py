"""A training reward over the epochs, one line a run."""

from recast_eval.plots.base import PlotSpec
from recast_eval.plots.lines import Lines, draw_lines, lines_alt, lines_size, lines_table

PLOT: PlotSpec[Lines] = PlotSpec(
    name="training-curves",
    title="Training curves",
    read=(
        "The mean of a training reward over the images of each epoch. A rise says that "
        "training works on what it was given, not that pictures became better: that is for "
        "the held-out judges."
    ),
    draw=draw_lines,
    table=lines_table,
    alt=lines_alt,
    size=lines_size,
)
