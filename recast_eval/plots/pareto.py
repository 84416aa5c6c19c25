"""What a sweep traded: one reward against another, and what nothing beats."""

from recast_eval.plots.base import PlotSpec
from recast_eval.plots.scatter import Points, draw_points, points_alt, points_table

PLOT: PlotSpec[Points] = PlotSpec(
    name="pareto",
    title="Pareto front of the sweep",
    read=(
        "Each point is one run of the sweep. The dashed stair joins the runs that no other run "
        "beats on both axes; a method whose points lie further up and right trades better."
    ),
    draw=draw_points,
    table=points_table,
    alt=points_alt,
    size=lambda info: (4.6, 3.6),
)
