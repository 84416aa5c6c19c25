"""A sweep over budgets: does a score answer to its budget, and what was traded."""

from collections.abc import Hashable, Sequence

import numpy as np

from recast_eval.plots.lines import lines_info
from recast_eval.plots.scatter import Point, points_info
from recast_eval.reporting.blocks import (
    Block,
    Cell,
    Look,
    Maker,
    NoteBlock,
    Section,
    num,
    p_text,
    words,
)
from recast_eval.reporting.facts import Facts, command_of, run_of
from recast_eval.reporting.inputs import Run
from recast_eval.stats import Interval, matched_runs

Results = dict[str, dict[str, float]]
"""Score name -> run name -> value."""


def section(facts: Facts, maker: Maker) -> Section | None:
    """Scores against budgets, the Pareto front, and methods matched run by run."""
    runs = swept(facts.runs)
    if not runs:
        return None
    results = run_results(facts, runs)
    source = "\n".join(dict.fromkeys(filter(None, map(command_of, runs[:3]))))
    rewards = list(runs[0].budgets)
    blocks: list[Block] = []
    matched = _matched(runs, results, maker, source)
    blocks += [matched] if matched else []
    for reward in rewards:
        if reward in results:
            blocks.append(_against_budget(runs, results, reward, reward, maker, source))
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
        "The same training with different budgets and seeds. A point is a mean over seeds, its "
        "bar one standard deviation of them.",
        tuple(blocks),
    )


def swept(runs: Sequence[Run]) -> list[Run]:
    """The most runs that share their rewards, if they differ in budgets; else none."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        if run.credits and run.metrics:
            groups.setdefault(tuple(run.budgets), []).append(run)
    most = max(groups.values(), key=len, default=[])
    budgets = {tuple(round(b, 6) for b in run.budgets.values()) for run in most}
    return most if len(budgets) > 1 else []


def run_results(facts: Facts, runs: Sequence[Run]) -> Results:
    """Evaluated means where a run was evaluated, else the mean of its last training steps."""
    found: Results = {}
    for evaluation in facts.evaluations:
        for model in evaluation.models:
            run = run_of(model, runs)
            for scorer in evaluation.scores.scorers if run else ():
                mean = evaluation.scores.means[scorer, model]
                if run is not None and mean.estimate is not None:
                    found.setdefault(scorer, {})[run.name] = mean.estimate
    for run in runs:
        for reward in run.budgets:
            values = [
                m.values[f"reward/{reward}"] for m in run.metrics if f"reward/{reward}" in m.values
            ]
            if values and run.name not in found.get(reward, {}):
                tail = values[-max(1, len(values) // 10) :]
                found.setdefault(reward, {})[run.name] = float(np.mean(tail))
    return found


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
        band="one standard deviation over seeds and budgets of the others",
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


def _matched(runs: Sequence[Run], results: Results, maker: Maker, source: str) -> Block | None:
    methods = list(dict.fromkeys(run.method for run in runs))
    static = [m for m in methods if "static" in m]
    others = [m for m in methods if m not in static]
    if not static or not others:
        return None
    rows = []
    for other in others:
        for score, values in results.items():
            keyed: list[dict[Hashable, float]] = [
                {
                    (tuple(run.budgets.items()), run.seed): values[run.name]
                    for run in runs
                    if run.method == method and run.name in values
                }
                for method in (other, static[0])
            ]
            if not set(keyed[0]) & set(keyed[1]):
                continue
            found = matched_runs(keyed[0], keyed[1])
            interval = found.t
            look: Look = "open" if found.p >= 0.05 else "good" if found.difference > 0 else "bad"
            ends = (
                f"[{interval.low:.3g}, {interval.high:.3g}]"
                if isinstance(interval, Interval)
                else "no interval"
            )
            rows.append(
                [
                    words(f"{other} minus {static[0]}"),
                    words(score),
                    Cell(f"{found.wins} / {found.ties} / {found.losses}"),
                    num(found.difference, look=look),
                    words(ends),
                    Cell(p_text(found.p), found.p),
                    num(float(len(found.unmatched))),
                ]
            )
    if not rows:
        return None
    return maker.table(
        "Matched pairs: same budget, same seed",
        "The run is the unit. Wins, ties and losses over matched pairs with the exact sign test; "
        "the interval is Student's over pairs. Not adjusted for the number of scores.",
        ["pair", "score", "win / tie / loss", "difference", "95 % interval", "p", "unmatched"],
        rows,
        source=source,
    )
