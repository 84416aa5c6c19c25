"""Figures: numbers first (``*_info``), then ink (``draw_*``), one file a plot.

>>> from recast_eval import plots
>>> sorted(plots.PLOTS)[:2]
['category-wins', 'credit-drift']

In a notebook or a paper::

    spec = plots.PLOTS.load("win-rates")
    plots.save(spec, info, Path("wins.pdf"))      # or .svg, .png
    spec.draw(axes, info)                         # onto axes of your own
"""

from typing import Any, Final

from recast_eval.plots.base import PlotSpec, Table, figure, save, svg
from recast_eval.plugins import Registry

PLOTS: Final[Registry[PlotSpec[Any]]] = Registry("recast.plots", "recast_eval.plots", "PLOT")
"""Name to plot; another distribution adds its own with the entry point ``recast.plots``."""

__all__ = ["PLOTS", "PlotSpec", "Table", "figure", "save", "svg"]
