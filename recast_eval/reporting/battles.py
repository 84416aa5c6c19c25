"""What the judges say: win rates of pairs by axis and category, and how verdicts ended."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from recast_eval.judging.records import VerdictRecord
from recast_eval.reporting.scores import Pair
from recast_eval.stats import (
    WinRate,
    WorstCase,
    benjamini_hochberg,
    decisive_win_rate,
    holm,
    sign_flip_test,
    win_rate,
    worst_case,
)


@dataclass(frozen=True, slots=True)
class Battle:
    """One pair of models, one judge, one axis, all prompts or those of a category."""

    judge: str
    axis: str
    pair: Pair
    category: str | None
    rate: WinRate | None
    """How often the first wins, ties as half; None if nothing was scored."""
    decisive: WinRate | None
    """Over pairs that were not ties."""
    worst: WorstCase
    states: dict[str, int]
    """first wins, second wins, tie, flip, unscored -> pairs."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Why pairs are unscored."""
    p: float = 1.0
    """Of ``rate`` against one half: prompts' signs flipped."""
    p_adjusted: float = 1.0
    """Over the table that it stands in: Holm; Benjamini and Hochberg over the categories."""

    @property
    def n_total(self) -> int:
        """Pairs put to the judge."""
        return sum(self.states.values())

    @property
    def n_scored(self) -> int:
        """Pairs with a verdict."""
        return self.n_total - self.states["unscored"]

    @property
    def flip_share(self) -> float:
        """Of the scored pairs."""
        return self.states["flip"] / self.n_scored if self.n_scored else 0.0

    @property
    def verdict(self) -> str:
        """``better``, ``worse`` or ``open`` at 5 %, after adjustment."""
        if self.rate is None or self.p_adjusted >= 0.05 or self.rate.estimate == 0.5:
            return "open"
        return "better" if self.rate.estimate > 0.5 else "worse"


@dataclass(frozen=True, slots=True)
class BattleTable:
    """All battles of one evaluation."""

    judges: tuple[str, ...]
    axes: tuple[str, ...]
    whole: tuple[Battle, ...]
    """By judge, pair, axis."""
    by_category: tuple[Battle, ...]
    """Of the focus pair."""

    def main(self, pair: Pair) -> Battle | None:
        """The headline battle of a pair: first judge, axis ``overall`` or the first."""
        axis = "overall" if "overall" in self.axes else next(iter(self.axes), "")
        for judge in self.judges:
            for battle in self.whole:
                if (battle.judge, battle.axis, battle.pair) == (judge, axis, pair):
                    return battle
        return None


def battle_table(
    verdicts: Sequence[VerdictRecord],
    pairs: Sequence[Pair],
    focus: Pair | None,
    categories: Sequence[str] = (),
) -> BattleTable:
    """Count and compare; the first repeat of each pair is what counts.

    Args:
        verdicts: One final record per key.
        pairs: Which to compare.
        focus: The pair that is also split by category.
        categories: All that prompts have, so that one without verdicts keeps its row.
    """
    used = [v for v in verdicts if v.repeat == 0]
    judges = tuple(dict.fromkeys(v.judge for v in used))
    axes = tuple(dict.fromkeys(axis for v in used for axis in v.axes))
    groups: dict[tuple[str, frozenset[str]], list[VerdictRecord]] = {}
    for v in used:
        groups.setdefault((v.judge, frozenset((v.model_a, v.model_b))), []).append(v)
    whole = [
        _battle(groups[judge, frozenset(pair)], judge, axis, pair, None)
        for judge in judges
        for pair in pairs
        if (judge, frozenset(pair)) in groups
        for axis in axes
    ]
    split = []
    if focus is not None:
        known = {v.category for v in used if v.category is not None}
        names = [*dict.fromkeys([*categories, *sorted(known)])]
        if any(v.category is None for v in used) and names:
            names.append("other")
        for judge in judges[:1]:
            mine = groups.get((judge, frozenset(focus)), [])
            axis = "overall" if "overall" in axes else axes[0]
            split = [
                _battle([v for v in mine if _in(v, n, known)], judge, axis, focus, n) for n in names
            ]
    return BattleTable(judges, axes, _adjusted(whole, holm), _adjusted(split, benjamini_hochberg))


def _in(verdict: VerdictRecord, name: str, known: set[str]) -> bool:
    if name == "other" and "other" not in known:
        return verdict.category is None
    return verdict.category == name


def _adjusted(
    battles: Sequence[Battle], adjust: Callable[[Sequence[float]], np.ndarray]
) -> tuple[Battle, ...]:
    values = adjust([b.p for b in battles])
    return tuple(replace(b, p_adjusted=float(p)) for b, p in zip(battles, values, strict=True))


def score_of(verdict: VerdictRecord, axis: str, first: str) -> float | None:
    """1 if ``first`` wins, 0 if it loses, 0.5 for a tie or a flip, None if unscored."""
    outcome = verdict.axes.get(axis)
    if outcome is None or outcome.score_a is None:
        return None
    return outcome.score_a if verdict.model_a == first else 1 - outcome.score_a


def _battle(
    verdicts: Sequence[VerdictRecord], judge: str, axis: str, pair: Pair, category: str | None
) -> Battle:
    scores, prompts, unscored = [], [], []
    states = dict.fromkeys(("first wins", "second wins", "tie", "flip", "unscored"), 0)
    reasons: Counter[str] = Counter()
    for v in verdicts:
        score = score_of(v, axis, pair[0])
        if score is None:
            outcome = v.axes.get(axis)
            reasons[str(outcome.reason if outcome else "no such axis")] += 1
            unscored.append(v.prompt_id)
            states["unscored"] += 1
            continue
        scores.append(score)
        prompts.append(v.prompt_id)
        state = v.axes[axis].state
        states["first wins" if score == 1 else "second wins" if score == 0 else state] += 1
    if not verdicts:
        return Battle(judge, axis, pair, category, None, None, NOTHING, states)
    decisive = decisive_win_rate(scores, prompts) if scores else None
    return Battle(
        judge,
        axis,
        pair,
        category,
        win_rate(scores, prompts) if scores else None,
        decisive if isinstance(decisive, WinRate) else None,
        worst_case(scores, prompts, unscored),
        states,
        dict(reasons),
        _p_value(scores, prompts),
    )


def _p_value(scores: Sequence[float], prompts: Sequence[str]) -> float:
    """Of the rate that is shown, not of the majorities: these may point the other way."""
    if not scores:
        return 1.0
    seeded = np.random.default_rng(0)  # drawn from only if prompts are of very many sizes
    return sign_flip_test(np.array(scores) - 0.5, prompts, rng=seeded)


NOTHING = WorstCase(0.0, 1.0, 0.0, 1.0, 0, 0)
"""With no pair at all, anything is possible."""
