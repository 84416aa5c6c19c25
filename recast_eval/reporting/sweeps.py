"""What a sweep says: results of its runs, and methods matched run by run."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from recast_eval.reporting.facts import Facts, run_of
from recast_eval.reporting.inputs import Run
from recast_eval.stats import MatchedRuns, holm, matched_runs

Results = dict[str, dict[str, float]]
"""Score name -> run name -> value."""


@dataclass(frozen=True, slots=True)
class Match:
    """Two methods on one score, over runs with the same budgets and seed."""

    method: str
    reference: str
    score: str
    found: MatchedRuns
    p_adjusted: float = 1.0
    """Holm over all matches of the sweep."""

    @property
    def verdict(self) -> str:
        """``better``, ``worse`` or ``open`` at 5 %, after adjustment.

        The test counts runs and the interval is of their mean: both must point one way.
        """
        ahead = self.found.wins - self.found.losses
        if self.p_adjusted >= 0.05 or ahead * self.found.difference <= 0:
            return "open"
        return "better" if ahead > 0 else "worse"


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


def matches(runs: Sequence[Run], results: Results) -> tuple[Match, ...]:
    """Every method against the static one on every score; none without a static one."""
    found = list(_matches(runs, results))
    adjusted = holm([match.found.p for match in found])
    return tuple(replace(m, p_adjusted=float(p)) for m, p in zip(found, adjusted, strict=True))


def _matches(runs: Sequence[Run], results: Results) -> Iterator[Match]:
    methods = list(dict.fromkeys(run.method for run in runs))
    static = [m for m in methods if "static" in m]
    for other in methods if static else ():
        if other in static:
            continue
        for score, values in results.items():
            keyed: list[dict[Hashable, float]] = [
                {
                    (tuple(run.budgets.items()), run.seed): values[run.name]
                    for run in runs
                    if run.method == method and run.name in values
                }
                for method in (other, static[0])
            ]
            if set(keyed[0]) & set(keyed[1]):
                yield Match(other, static[0], score, matched_runs(keyed[0], keyed[1]))
