"""Did what was trained on rise while what was held out fell?"""

from recast_eval.plots.base import PlotSpec
from recast_eval.plots.scatter import Points, draw_points, points_alt, points_table

PLOT: PlotSpec[Points] = PlotSpec(
    name="reward-hacking",
    title="Training rewards against held-out judges",
    read=(
        "Each point is a model against the reference: right means its training rewards rose, up "
        "means the held-out judges rose. Below and right of the dotted cross is the corner of "
        "reward hacking. Bars are 95 % over prompts of the mean over scorers."
    ),
    draw=draw_points,
    table=points_table,
    alt=points_alt,
    size=lambda info: (4.6, 3.3),
)
