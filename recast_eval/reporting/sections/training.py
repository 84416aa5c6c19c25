"""What training saw: rewards and vital signs, step by step."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from recast_eval.plots import PLOTS
from recast_eval.plots.lines import lines_info
from recast_eval.records import MetricRecord
from recast_eval.reporting.blocks import (
    Block,
    Cell,
    Maker,
    NoteBlock,
    Section,
    num,
    number_text,
    words,
)
from recast_eval.reporting.facts import Facts, command_of
from recast_eval.reporting.inputs import Run

SHOWN_RUNS = 8
VITALS = {
    "loss": (
        "Loss",
        "What the optimiser lowers. Its level depends on the method and on the noise levels drawn, "
        "so it says little by itself; a jump or a drift upward says that training is unwell.",
    ),
    "kl": (
        "Distance from the base model (KL)",
        "The penalty that keeps the policy near the base model, as it is added to the loss: it "
        "grows as the policy moves away.",
    ),
    "grad_norm": (
        "Gradient norm",
        "Length of the gradient of each step before it is clipped: spikes are steps to look at.",
    ),
    "clip_fraction": (
        "Share of clipped ratios",
        "Share of samples whose policy ratio was clipped: near 0 the clip does nothing, near 1 "
        "nothing else teaches.",
    ),
}
SMOOTHED = 16
"""Curves of more epochs get a running mean over a quarter of them."""


def section(facts: Facts, maker: Maker) -> Section | None:
    """Training curves of every reward, runs side by side."""
    runs = [run for run in facts.runs if run.metrics]
    if not runs:
        return None
    shown = _in_turns(runs)[:SHOWN_RUNS]
    source = "\n".join(dict.fromkeys(filter(None, map(command_of, shown))))
    names = _keys(shown)
    blocks: list[Block] = [_ends(runs, maker, source)]
    rewards = [n for n in names if n.startswith("reward/")]
    blocks += [_reward(shown, name, maker, source) for name in rewards]
    for name, (title, read) in VITALS.items():
        if name in names:
            series = {run.name: _series(run, name) for run in shown if _series(run, name)[0]}
            blocks.append(steady_or_figure(series, name, title, read, maker, source))
    if len(runs) > len(shown):
        blocks.append(NoteBlock(f"Curves of {len(runs) - len(shown)} more runs are not drawn."))
    return Section(
        "training",
        "Training",
        "Means of the training rewards over the images of each epoch. They say that the optimiser "
        "works, not that the pictures became better.",
        tuple(blocks),
    )


def _in_turns(runs: Sequence[Run]) -> list[Run]:
    """One run of each method after the other, so that a cut leaves every method something."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.method, []).append(run)
    return [run for turn in zip_longest(*groups.values()) for run in turn if run is not None]


def _reward(shown: Sequence[Run], name: str, maker: Maker, source: str) -> Block:
    reward = name.removeprefix("reward/")
    series = {run.name: _by_epoch(run, name) for run in shown if _by_epoch(run, name)[0]}
    longest = max((len(x) for x, _ in series.values()), default=0)
    width = 2 * (longest // 8) + 1 if longest > SMOOTHED else 1
    info = lines_info(series, x_label="epoch", y_label=f"{reward} (mean reward)", smooth=width)
    read = PLOTS.load("training-curves").read
    if width > 1:
        read += (
            f" Faint: each epoch, which has prompts of its own and so jumps; bold: the mean over "
            f"{width} epochs around it."
        )
    return maker.figure("training-curves", info, title=f"Reward {reward}", source=source, read=read)


def steady_or_figure(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    name: str,
    title: str,
    read: str,
    maker: Maker,
    source: str,
) -> Block:
    """Curves over optimiser steps; one sentence if nothing ever moved."""
    values = {y for _, ys in series.values() for y in ys}
    if len(values) == 1:
        return NoteBlock(f"{title} ({name}): {number_text(values.pop())} at every step.")
    info = lines_info(series, x_label="optimiser step", y_label=title[0].lower() + title[1:])
    return maker.figure("diagnostics", info, title=title, source=source, read=read)


def _by_epoch(run: Run, name: str) -> tuple[list[float], list[float]]:
    """The last value of each epoch, epochs counted from 1: its steps share their images."""
    found = {float(m.epoch + 1): m.values[name] for m in run.metrics if name in m.values}
    return list(found), list(found.values())


def _keys(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(k for run in runs for m in run.metrics for k in m.values))


def _series(run: Run, name: str) -> tuple[list[float], list[float]]:
    found = [(float(m.step), m.values[name]) for m in run.metrics if name in m.values]
    return [x for x, _ in found], [y for _, y in found]


def _ends(runs: Sequence[Run], maker: Maker, source: str) -> Block:
    rewards = [k for k in _keys(runs) if k.startswith("reward/")]
    rows = []
    for run in runs:
        first, last = run.metrics[0], run.metrics[-1]
        cells = [words(run.name), words(run.method), _seed(run), num(last.step + 0.0, 6)]
        for name in rewards:
            cells += [num(first.values.get(name)), num(last.values.get(name))]
        cells.append(num(training_minutes(run.metrics), 3))
        rows.append(cells)
    head = ["run", "method", "seed", "last step"]
    for name in rewards:
        short = name.removeprefix("reward/")
        head += [f"{short} first", f"{short} last"]
    return maker.table(
        "First and last step of each run",
        "Means over the images of one step each, which have prompts of their own: too noisy to "
        "compare runs by. The scores of an evaluation are the measure.",
        [*head, "minutes"],
        rows,
        source=source,
    )


def training_minutes(metrics: Sequence[MetricRecord]) -> float:
    """Minutes of all epochs; a step's seconds count from the beginning of its epoch."""
    ends = {m.epoch: m.seconds for m in metrics}
    return sum(ends.values()) / 60


def _seed(run: Run) -> Cell:
    return words(str(run.seed)) if run.seed is not None else Cell("unknown", None, "none")
