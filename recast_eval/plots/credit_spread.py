"""How far seeds agree on W: the spread behind the heat map."""

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes

from recast_eval.plots.base import PlotSpec, fit
from recast_eval.plots.credit_weights import (
    CreditWeights,
    credit_weights_table,
    hatch_missing,
)


def draw_credit_spread(axes: Axes, info: CreditWeights) -> None:
    """Rewards down, steps across; a cell that one seed only knows is hatched grey."""
    known = info.spread[np.isfinite(info.spread)]
    few = info.spread.shape[1] <= 12
    sns.heatmap(
        info.spread,
        ax=axes,
        mask=~np.isfinite(info.spread),
        cmap="cividis",
        vmin=0.0,
        vmax=max(float(known.max()) if known.size else 0.0, 0.1),
        annot=few,
        fmt=".2f",
        annot_kws={"fontsize": 8},
        cbar_kws={"label": "SD over seeds"},
        xticklabels=False,
        yticklabels=False,
    )
    hatch_missing(axes, info.spread)
    steps = len(info.sigmas)
    shown = range(0, steps, max(1, -(-steps // 10)))
    axes.set_xticks([j + 0.5 for j in shown], [f"{info.sigmas[j]:.2f}" for j in shown])
    axes.set_yticks([k + 0.5 for k in range(len(info.rewards))], [fit(r) for r in info.rewards])
    axes.tick_params(axis="y", rotation=0)
    axes.set(xlabel="noise level of the step (noisy to clean)")
    axes.grid(False)


def credit_spread_alt(info: CreditWeights) -> str:
    """Say the largest spread."""
    if not np.isfinite(info.spread).any():
        return "Heat map of the spread of W over seeds. No data: one seed only."
    k, j = np.unravel_index(int(np.nanargmax(info.spread)), info.spread.shape)
    return (
        f"Heat map of the spread of W over {info.seeds} seeds: largest for {info.rewards[k]} at "
        f"noise level {info.sigmas[j]:.2f} with {info.spread[k, j]:.2f}."
    )


PLOT = PlotSpec(
    name="credit-spread",
    title="Spread of W over seeds",
    read=(
        "Standard deviation over seeds of each cell of the heat map of W. Where it is as large "
        "as the difference from 1, the shape of W there is luck."
    ),
    draw=draw_credit_spread,
    table=credit_weights_table,
    alt=credit_spread_alt,
    size=lambda info: (4.9, 1.5 + 0.36 * len(info.rewards)),
)
