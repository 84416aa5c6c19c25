"""Credit of each reward by third of the denoising steps."""

from recast_eval.plots.base import PlotSpec
from recast_eval.plots.shares import Shares, draw_shares, shares_alt, shares_size, shares_table

PLOT: PlotSpec[Shares] = PlotSpec(
    name="realised-credit",
    title="Where each reward's credit went",
    read=(
        "The budget of each reward split over the noisy, the middle and the clean third of "
        "the steps. The static baseline gives every third the same."
    ),
    draw=draw_shares,
    table=shares_table,
    alt=shares_alt,
    size=shares_size,
)
