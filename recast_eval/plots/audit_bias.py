"""What moves a judge besides merit: picture properties, one row each."""

from recast_eval.plots.base import PlotSpec
from recast_eval.plots.intervals import (
    Intervals,
    draw_intervals,
    intervals_alt,
    intervals_size,
    intervals_table,
)

PLOT: PlotSpec[Intervals] = PlotSpec(
    name="audit-bias",
    title="Picture properties and the judge",
    read=(
        "Log-odds of winning per standard deviation (SD) of a property, within the most judged "
        "pair of models: right of 0 the judge favours more of it, left less. A hollow dot is not "
        "beyond chance once all properties are counted; a hatched row could not be measured."
    ),
    draw=draw_intervals,
    table=intervals_table,
    alt=intervals_alt,
    size=intervals_size,
)
