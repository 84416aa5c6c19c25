"""What the scorers say: a table of scores, means with intervals, differences between models."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from recast_eval.records import Failed, Scored, ScoreRecord
from recast_eval.scorers.each import NOT_APPLICABLE
from recast_eval.stats import Interval, holm, mcnemar, paired_difference

Pair = tuple[str, str]
"""(first, second): numbers say how the first stands against the second."""
ALL_REWARDS = "all training rewards"


@dataclass(frozen=True, slots=True)
class Mean:
    """A model's mean on a scorer, in the scorer's unit, beside what it is the mean of."""

    estimate: float | None
    interval: Interval | None
    n_scored: int
    n_total: int
    truncated: int
    """Images whose prompt was longer than the scorer reads."""


@dataclass(frozen=True, slots=True)
class Difference:
    """First minus second on the same prompts and samples."""

    scorer: str
    role: str
    pair: Pair
    estimate: float
    interval: Interval | None
    """None with a single prompt."""
    scale: float
    """Standard deviation of this scorer's prompt means; 0 if they are all equal."""
    improved: float
    """Share of prompts on which the first is higher."""
    n_prompts: int
    n_pairs: int
    p: float
    p_adjusted: float = 1.0
    """Holm over all scorers and pairs shown."""
    coverage_p: float = 1.0
    """McNemar: small if one model fails to be scored more often than the other."""

    @property
    def effect(self) -> float:
        """In standard deviations; NaN if nothing varies."""
        return self.estimate / self.scale if self.scale else float("nan")

    @property
    def verdict(self) -> str:
        """``better``, ``worse`` or ``open`` at 5 %, after adjustment."""
        if self.p_adjusted >= 0.05 or self.estimate == 0:
            return "open"
        return "better" if self.estimate > 0 else "worse"


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """All that is known about scores in one evaluation."""

    frame: pd.DataFrame
    """A row a record: model, prompt_id, sample, scorer, role, value (NaN if failed), reason."""
    scorers: tuple[str, ...]
    roles: dict[str, str]
    means: dict[tuple[str, str], Mean]
    """(scorer, model) -> mean."""
    differences: tuple[Difference, ...]

    def images(self) -> dict[str, int]:
        """Model -> images that any scorer looked at."""
        each = self.frame[["model", "prompt_id", "sample"]].drop_duplicates()
        return {str(model): int(count) for model, count in each["model"].value_counts().items()}

    def reasons(self, scorer: str) -> str:
        """Why a scorer failed, most frequent first: ``engine: 12, no text: 3``."""
        failed = self.frame[(self.frame["scorer"] == scorer) & self.frame["value"].isna()]
        counts = failed["reason"].value_counts()
        return ", ".join(f"{reason}: {count}" for reason, count in counts.head(3).items())

    def of_pair(self, pair: Pair, role: str | None = None) -> tuple[Difference, ...]:
        """Differences of a pair, of one role or all."""
        return tuple(
            d for d in self.differences if d.pair == pair and (role is None or d.role == role)
        )


def score_frame(records: Sequence[ScoreRecord]) -> pd.DataFrame:
    """One row a record, ids as text, a failed outcome as a missing value with its reason."""
    rows = [
        (
            r.model,
            r.prompt_id,
            r.sample,
            r.scorer,
            r.role,
            np.nan if isinstance(r.outcome, Failed) else r.outcome.value,
            r.outcome.reason if isinstance(r.outcome, Failed) else "",
            not isinstance(r.outcome, Failed) and r.outcome.truncated,
        )
        for r in records
        # A prompt that asks for nothing that a scorer reads is no gap in its coverage.
        if not (isinstance(r.outcome, Failed) and r.outcome.reason == NOT_APPLICABLE)
    ]
    columns = ["model", "prompt_id", "sample", "scorer", "role", "value", "reason", "truncated"]
    frame = pd.DataFrame(rows, columns=columns)
    kinds = dict.fromkeys(("model", "prompt_id", "scorer", "role", "reason"), str)
    return frame.astype(kinds | {"sample": "int64", "value": "float64", "truncated": "bool"})


def aggregate(records: Sequence[ScoreRecord], budgets: Mapping[str, float]) -> list[ScoreRecord]:
    """All training rewards of an image as one: their mean, weighted by the budgets.

    A reward that does not read the prompt is left out of it; one that failed fails the sum.

    Args:
        records: Any; held-out ones are ignored, and so are relatives of a reward that had no
            budget themselves.
        budgets: Reward -> budget; {} weighs all alike.
    """
    groups: dict[tuple[str, str, int], list[ScoreRecord]] = {}
    for record in records:
        if record.role == "train" and (not budgets or record.scorer in budgets):
            groups.setdefault((record.model, record.prompt_id, record.sample), []).append(record)
    return [_joined(group, budgets) for group in groups.values()]


def _joined(group: Sequence[ScoreRecord], budgets: Mapping[str, float]) -> ScoreRecord:
    weights, values = [], []
    outcome: Scored | Failed = Failed(reason=NOT_APPLICABLE)
    failed = None
    for record in group:
        if isinstance(record.outcome, Scored):
            weights.append(budgets.get(record.scorer, 1.0))
            values.append(record.outcome.value)
        elif record.outcome.reason != NOT_APPLICABLE:
            failed = Failed(reason=f"{record.scorer}: {record.outcome.reason}")
    if failed is not None:
        outcome = failed
    elif sum(weights) > 0:
        outcome = Scored(value=float(np.average(values, weights=weights)))
    return group[0].model_copy(update={"scorer": ALL_REWARDS, "outcome": outcome})


def score_table(
    records: Sequence[ScoreRecord], models: Sequence[str], pairs: Sequence[Pair]
) -> ScoreTable:
    """Compute means of every scorer and model, and differences of every pair.

    Args:
        records: One final record per (model, prompt, sample, scorer).
        models: In the order in which they are shown.
        pairs: Which to compare.
    """
    frame = score_frame(records)
    roles = dict(zip(frame["scorer"], frame["role"], strict=True))
    scorers = sorted(roles, key=lambda name: roles[name] != "train")
    means, differences = {}, list[Difference]()
    for scorer in scorers:
        mine = frame[frame["scorer"] == scorer]
        wide = mine.pivot(index=["prompt_id", "sample"], columns="model", values="value")
        tried = mine.pivot(index=["prompt_id", "sample"], columns="model", values="scorer").notna()
        scale = _scale(wide)
        for model in models:
            means[scorer, model] = _mean(mine[mine["model"] == model])
        for pair in pairs:
            found = _difference(wide, tried, scorer, roles[scorer], pair, scale)
            differences += [found] if found else []
    adjusted = holm([d.p for d in differences])
    differences = [
        replace(d, p_adjusted=float(p)) for d, p in zip(differences, adjusted, strict=True)
    ]
    return ScoreTable(frame, tuple(scorers), roles, means, tuple(differences))


def _mean(rows: pd.DataFrame) -> Mean:
    good = rows[rows["value"].notna()]
    truncated = int(rows["truncated"].sum())
    if good.empty:
        return Mean(None, None, 0, len(rows), truncated)
    values = good["value"].to_numpy()
    # a mean clustered by prompt is a paired difference to nothing
    found = paired_difference(
        values,
        np.zeros_like(values),
        good["prompt_id"].tolist(),
        rng=np.random.default_rng(0),
        resamples=1,
    )
    interval = found.t if isinstance(found.t, Interval) else None
    return Mean(found.estimate, interval, len(good), len(rows), truncated)


def _difference(
    wide: pd.DataFrame, tried: pd.DataFrame, scorer: str, role: str, pair: Pair, scale: float
) -> Difference | None:
    if not set(pair) <= set(wide.columns):
        return None
    both = wide[[*pair]]
    # An image that only one of the two has is no failure of the other.
    failed = both[tried[[*pair]].all(axis=1)].isna()
    matched = both.dropna()
    if matched.empty:
        return None
    found = paired_difference(
        matched[pair[0]].to_numpy(),
        matched[pair[1]].to_numpy(),
        matched.index.get_level_values("prompt_id").tolist(),
        rng=np.random.default_rng(0),
    )
    interval = next((i for i in (found.bca, found.t) if isinstance(i, Interval)), None)
    return Difference(
        scorer=scorer,
        role=role,
        pair=pair,
        estimate=found.estimate,
        interval=interval,
        scale=scale,
        improved=found.improved.estimate,
        n_prompts=found.n_prompts,
        n_pairs=found.n_pairs,
        p=found.p,
        coverage_p=mcnemar(failed[pair[0]].to_numpy(), failed[pair[1]].to_numpy()),
    )


def _scale(wide: pd.DataFrame) -> float:
    """Mean over models of the standard deviation of prompt means."""
    by_prompt = wide.groupby(level="prompt_id", observed=True, sort=False).mean()
    spread = by_prompt.std(ddof=1).dropna()
    return float(spread.mean()) if len(spread) else 0.0


def all_pairs(models: Sequence[str], focus: Pair | None, *, most: int = 6) -> tuple[Pair, ...]:
    """Pairs to show, later model first; the focus leads, and too many fall back on a reference.

    Args:
        models: In order, the reference first.
        focus: The pair that the report is about.
        most: More pairs than this are cut to those with the reference and the focus.
    """
    every = [(b, a) for i, a in enumerate(models) for b in models[i + 1 :]]
    if len(every) > most:
        every = [(model, models[0]) for model in models[1:]]
    return tuple(dict.fromkeys([*([focus] if focus else []), *every]))


def prompt_effects(table: ScoreTable, pair: Pair, role: str) -> pd.Series:
    """Mean over scorers of a role of (first - second) / SD, per prompt id.

    Used to choose what a gallery shows, never as a result.
    """
    parts = list(_effects(table, pair, role))
    if not parts:
        return pd.Series(dtype="float64")
    return pd.concat(parts, axis=1).mean(axis=1).dropna()


def _effects(table: ScoreTable, pair: Pair, role: str) -> Iterator[pd.Series]:
    for difference in table.of_pair(pair, role):
        if not difference.scale:
            continue
        mine = table.frame[table.frame["scorer"] == difference.scorer]
        wide = mine.pivot(index=["prompt_id", "sample"], columns="model", values="value")
        gap = (wide[pair[0]] - wide[pair[1]]) / difference.scale
        yield gap.groupby(level="prompt_id", observed=True, sort=False).mean()
