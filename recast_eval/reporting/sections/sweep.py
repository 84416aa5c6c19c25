"""A sweep over budgets: does a score answer to its budget, and what was traded."""

from collections.abc import Sequence

import numpy as np

from recast_eval.plots.lines import lines_info
from recast_eval.plots.scatter import Point, points_info
from recast_eval.reporting.blocks import (
    Block,
    Cell,
    Maker,
    NoteBlock,
    Section,
    interval_cell,
    num,
    p_text,
    words,
)
from recast_eval.reporting.facts import Facts, command_of
from recast_eval.reporting.inputs import Run
from recast_eval.reporting.sections.scores import LOOKS, SAYS
from recast_eval.reporting.sweeps import Match, Results, matches, run_results, swept
from recast_eval.stats import Interval


def section(facts: Facts, maker: Maker) -> Section | None:
    """Scores against budgets, the Pareto front, and methods matched run by run."""
    runs = swept(facts.runs)
    if not runs:
        return None
    results = run_results(facts, runs)
    source = "\n".join(dict.fromkeys(filter(None, map(command_of, runs[:3]))))
    rewards = list(runs[0].budgets)
    blocks: list[Block] = []
    if found := matches(runs, results):
        blocks.append(_matched(found, maker, source))
    blocks += [
        _against_budget(runs, results, reward, reward, maker, source)
        for reward in rewards
        if reward in results
    ]
    for name in results:
        if name not in rewards:
            main = _widest(runs, rewards)
            blocks.append(_against_budget(runs, results, name, main, maker, source))
    blocks += _fronts(runs, results, rewards, maker, source)
    blocks.append(
        NoteBlock(
            "A budget that was chosen because it did best here looks better than it is: choose "
            "on one prompt split, report on another."
        )
    )
    return Section(
        "sweep",
        "Sweep over budgets",
        "The same training with different budgets and seeds. A point is a mean over the runs with "
        "that budget.",
        tuple(blocks),
    )


def _widest(runs: Sequence[Run], rewards: Sequence[str]) -> str:
    """The reward whose budget varies most."""
    return max(rewards, key=lambda r: float(np.std([run.budgets.get(r, 0.0) for run in runs])))


def _by_budget(
    runs: Sequence[Run], values: dict[str, float], reward: str
) -> dict[str, list[tuple[float, float, float]]]:
    """Method -> (budget of the reward, mean, SD), rising in budget."""
    cells: dict[str, dict[float, list[float]]] = {}
    for run in runs:
        if run.name in values:
            budget = round(run.budgets.get(reward, 0.0), 6)
            cells.setdefault(run.method, {}).setdefault(budget, []).append(values[run.name])
    return {
        method: [
            (b, float(np.mean(v)), float(np.std(v, ddof=1)) if len(v) > 1 else float("nan"))
            for b, v in sorted(by.items())
        ]
        for method, by in cells.items()
    }


def _against_budget(
    runs: Sequence[Run], results: Results, score: str, reward: str, maker: Maker, source: str
) -> Block:
    table = _by_budget(runs, results[score], reward)
    info = lines_info(
        {m: ([b for b, _, _ in row], [v for _, v, _ in row]) for m, row in table.items()},
        x_label=f"budget of {reward}",
        y_label=score,
        errors={m: [s for _, _, s in row] for m, row in table.items()},
        multiplier=1.0,
        band="one standard deviation over seeds and the budgets of the other rewards",
    )
    title = f"{score} against the budget of {reward}"
    return maker.figure("budget-sweep", info, title=title, source=source)


def _fronts(
    runs: Sequence[Run], results: Results, rewards: Sequence[str], maker: Maker, source: str
) -> list[Block]:
    known = [r for r in rewards if r in results]
    ranked = sorted(known, key=lambda r: -float(np.std([run.budgets.get(r, 0) for run in runs])))
    if len(ranked) < 2:
        return []
    one, two = ranked[:2]
    points = [
        Point(_short(run), results[one][run.name], results[two][run.name], run.method)
        for run in runs
        if run.name in results[one] and run.name in results[two]
    ]
    info = points_info(points, x_label=one, y_label=two, front=True)
    title = f"Pareto front: {one} and {two}"
    return [maker.figure("pareto", info, title=title, source=source)]


def _short(run: Run) -> str:
    return run.name.rsplit("/", 1)[-1]


def _matched(found: Sequence[Match], maker: Maker, source: str) -> Block:
    rows = []
    for match in found:
        runs = match.found
        difference = num(runs.difference)
        if isinstance(runs.t, Interval):
            difference = interval_cell(runs.difference, runs.t.low, runs.t.high)
        rows.append(
            [
                words(f"{match.method} minus {match.reference}"),
                words(match.score),
                Cell(f"{runs.wins} / {runs.ties} / {runs.losses}"),
                difference,
                Cell(p_text(match.p_adjusted), match.p_adjusted),
                Cell(str(len(runs.unmatched)), len(runs.unmatched)),
                words(SAYS[match.verdict], LOOKS[match.verdict]),
            ]
        )
    return maker.table(
        "Matched pairs: same budget, same seed",
        "The run is the unit. Wins, ties and losses over matched pairs with the exact sign test, "
        "adjusted by Holm over this table; the interval is Student's over pairs; both must point "
        "one way to tell methods apart. 'Unmatched' are runs without a partner of the same budget "
        "and seed.",
        [
            "pair",
            "score",
            "win / tie / loss",
            "difference [95 % interval]",
            "adjusted p",
            "unmatched",
            "says",
        ],
        rows,
        source=source,
    )
