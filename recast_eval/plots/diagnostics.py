"""What a method said about itself while it trained."""

from recast_eval.plots.base import PlotSpec
from recast_eval.plots.lines import Lines, draw_lines, lines_alt, lines_size, lines_table

PLOT: PlotSpec[Lines] = PlotSpec(
    name="diagnostics",
    title="Method diagnostics",
    read=(
        "Quantities that the training method logged at each step; see the method's page for "
        "what each one means."
    ),
    draw=draw_lines,
    table=lines_table,
    alt=lines_alt,
    size=lines_size,
)
