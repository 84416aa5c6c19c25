"""Figures of docs/credit.md: ``python -m recast_train.credit.figures docs/figures``."""

import sys
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from recast_train.credit import solve_weights, static_weights
from recast_train.credit.curves import relative_gains
from recast_train.credit.estimators import ESTIMATORS
from recast_train.credit.gaussian import (
    COARSE,
    FINE,
    MIDDLE,
    draw,
    exact_information,
    shifted_sigmas,
)

NAMES = ("coarse", "middle", "fine")
COORDINATES = (COARSE, MIDDLE, FINE)
SIGMAS = shifted_sigmas(25)
STEPS = np.arange(25)
COLOURS = ("#0072b2", "#d55e00", "#009e73")
SHOWN = {"forward-pair": "o", "cross-fit": "s", "plug-in": "x"}


def figure(width: float, height: float) -> Figure:
    """An empty figure, inches, without pyplot's global state."""
    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def curves(folder: Path) -> None:
    """Exact curves of the Gaussian policy, and what three estimators make of 480 samples."""
    probes = SIGMAS[[2, 5, 8, 11, 14, 17, 20, 23]]
    generator = np.random.default_rng(0)
    samples = draw(COORDINATES, probes, prompts=40, images=12, generator=generator)
    made = figure(8.6, 3.0)
    for axes, (name, marker) in zip(made.subplots(1, 3, sharey=True), SHOWN.items(), strict=True):
        found = ESTIMATORS[name](samples, replicates=200, generator=np.random.default_rng(1))
        for k, colour in enumerate(COLOURS):
            axes.plot(
                SIGMAS, exact_information(SIGMAS, COORDINATES[k]), color=colour, label=NAMES[k]
            )
            axes.errorbar(
                probes, found.information[k], 1.96 * found.errors[k],
                fmt=marker, color=colour, markersize=4, linewidth=1,
            )  # fmt: skip
        axes.set(title=name, xlabel="noise level", xlim=(1, 0))
    made.axes[0].set_ylabel("share of variance decided")
    made.axes[0].legend(frameon=False)
    made.savefig(folder / "credit-curves.svg", metadata={"Date": None})


def solved(folder: Path) -> None:
    """Gains and the W that they give, budgets (2, 1, 1)."""
    information = np.stack([exact_information(SIGMAS, c) for c in COORDINATES])
    gains = np.diff(information)
    budgets = np.array([2, 1, 1]) / 4
    multiplier = solve_weights(gains, budgets) / static_weights(budgets, 25)
    made = figure(8.6, 3.0)
    left, right = made.subplots(1, 2)
    for k, colour in enumerate(COLOURS):
        left.plot(STEPS, relative_gains(gains)[k], color=colour, label=NAMES[k])
        right.plot(STEPS, multiplier[k], color=colour)
    left.set(title="relative gains", xlabel="step, from noise to image")
    right.set(title="W, times the static share", xlabel="step, from noise to image")
    right.axhline(1, color="0.7", linewidth=0.8, zorder=0)
    left.legend(frameon=False)
    made.savefig(folder / "credit-weights.svg", metadata={"Date": None})


def main() -> None:
    """Write all figures into the folder given."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    curves(folder)
    solved(folder)


if __name__ == "__main__":
    main()
