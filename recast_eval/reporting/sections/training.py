"""What training saw: rewards and vital signs, step by step."""

from collections.abc import Sequence

from recast_eval.plots.lines import lines_info
from recast_eval.reporting.blocks import Block, Cell, Maker, NoteBlock, Section, num, words
from recast_eval.reporting.facts import Facts, command_of
from recast_eval.reporting.inputs import Run

SHOWN_RUNS = 8
VITALS = ("loss", "kl", "grad_norm", "clip_fraction")


def section(facts: Facts, maker: Maker) -> Section | None:
    """Training curves of every reward, runs side by side."""
    runs = [run for run in facts.runs if run.metrics]
    if not runs:
        return None
    shown = runs[:SHOWN_RUNS]
    source = "\n".join(dict.fromkeys(filter(None, map(command_of, shown))))
    names = _keys(shown)
    blocks: list[Block] = [_ends(runs, maker, source)]
    rewards = [n for n in names if n.startswith("reward/")]
    for name in [*rewards, *(v for v in VITALS if v in names)]:
        title = f"Reward {name.removeprefix('reward/')}" if name in rewards else name
        plot = "training-curves" if name in rewards else "diagnostics"
        info = lines_info(
            {run.name: _series(run, name) for run in shown if _series(run, name)[0]},
            x_label="optimiser step",
            y_label=name.removeprefix("reward/"),
        )
        blocks.append(maker.figure(plot, info, title=title, source=source))
    if len(runs) > len(shown):
        blocks.append(NoteBlock(f"Curves of {len(runs) - len(shown)} more runs are not drawn."))
    return Section(
        "training",
        "Training",
        "Means of the training rewards over the images of each step. They say that the optimiser "
        "works, not that the pictures became better.",
        tuple(blocks),
    )


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
        cells.append(num(sum(m.seconds for m in run.metrics) / 60, 3))
        rows.append(cells)
    head = ["run", "method", "seed", "last step"]
    for name in rewards:
        short = name.removeprefix("reward/")
        head += [f"{short} first", f"{short} last"]
    return maker.table(
        "First and last step of each run",
        "Means over the images of one step each, so noisy: the evaluation below is the measure.",
        [*head, "minutes"],
        rows,
        source=source,
    )


def _seed(run: Run) -> Cell:
    return words(str(run.seed)) if run.seed is not None else Cell("unknown", None, "none")
