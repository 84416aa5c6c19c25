"""What became of each pair that was put to the judge."""

from recast_eval.plots.base import PlotSpec
from recast_eval.plots.shares import Shares, draw_shares, shares_alt, shares_size, shares_table

PLOT: PlotSpec[Shares] = PlotSpec(
    name="verdict-states",
    title="How the verdicts ended",
    read=(
        "Pairs by how they ended. A flip is a pair whose verdict changed when the pictures "
        "were swapped: the more flips, the more the judge listens to position instead of "
        "pictures."
    ),
    draw=draw_shares,
    table=shares_table,
    alt=shares_alt,
    size=shares_size,
)
