"""Scorers and people beside a judge."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from recast_eval.judging.audit_measures import Item, item_of, label_of, measure, share
from recast_eval.judging.audit_records import Human, Measure, NotMeasured, ScorerAgreement, Vote
from recast_eval.judging.records import VerdictRecord
from recast_eval.records import Scored, ScoreRecord
from recast_eval.stats import Undefined, agreement, krippendorff_alpha

MOST_CONTRADICTIONS = 8

Values = Mapping[tuple[str, str, int], float]
"""(model, prompt_id, sample) -> value of one scorer."""


def scorer_agreement(
    records: Sequence[VerdictRecord],
    axis: str,
    scores: Sequence[ScoreRecord],
    rng: np.random.Generator,
) -> list[ScorerAgreement]:
    """Compare each scorer's order of the two pictures with the judge's."""
    values: dict[str, dict[tuple[str, str, int], float]] = {}
    roles: dict[str, str] = {}
    for score in scores:
        roles[score.scorer] = score.role
        of = values.setdefault(score.scorer, {})
        if isinstance(score.outcome, Scored):
            of[score.model, score.prompt_id, score.sample] = score.outcome.value
    return [_one_scorer(records, axis, name, roles[name], of, rng) for name, of in values.items()]


def _one_scorer(
    records: Sequence[VerdictRecord],
    axis: str,
    name: str,
    role: str,
    values: Values,
    rng: np.random.Generator,
) -> ScorerAgreement:
    ours: list[str | None] = []
    theirs: list[str | None] = []
    prompts: list[str] = []
    gaps: list[tuple[float, VerdictRecord, str, str]] = []
    for record in records:
        pair = [
            values.get((m, record.prompt_id, record.sample))
            for m in (record.model_a, record.model_b)
        ]
        if pair[0] is None or pair[1] is None:
            continue
        gap = pair[0] - pair[1]
        label = "tie" if gap == 0 else f"win {record.model_a if gap > 0 else record.model_b}"
        judge = label_of(record, axis)
        ours.append(judge)
        theirs.append(label)
        prompts.append(record.prompt_id)
        if judge is not None and "tie" not in (judge, label) and judge != label:
            gaps.append((abs(gap), record, judge[4:], label[4:]))
    same = [
        (float(a == b), p)
        for a, b, p in zip(ours, theirs, prompts, strict=True)
        if a is not None and "tie" not in (a, b)
    ]
    spread = float(np.std(list(values.values()))) or 1.0
    gaps.sort(key=lambda found: -found[0])
    found = agreement(ours, theirs, prompts, rng=rng) if ours else None
    return ScorerAgreement(
        scorer=name,
        role="train" if role == "train" else "heldout",
        same_side=share([s for s, _ in same], [p for _, p in same], "no decisive pair in common"),
        kappa=NotMeasured(reason="no pair in common")
        if found is None
        else measure(found.kappa, found.n_items, found.n_prompts),
        contradictions=[
            f"prompt {record.prompt_id!r} sample {record.sample}: the judge prefers {judge}, "
            f"{name} prefers {scorer} by {gap / spread:.1f} SD"
            for gap, record, judge, scorer in gaps[:MOST_CONTRADICTIONS]
        ],
    )


def majority(votes: Sequence[Vote]) -> str | None:
    """What more than half of the people said, as a label; ``tie`` if there is no majority."""
    if not votes:
        return None
    label, count = Counter(_label(vote) for vote in votes).most_common(1)[0]
    return label if 2 * count > len(votes) else "tie"


def human_agreement(
    records: Mapping[Item, VerdictRecord],
    axis: str,
    votes: Sequence[Vote],
    rng: np.random.Generator,
) -> Human | None:
    """Compare a judge with people on the pairs that both saw; None if there are none."""
    by_item: dict[Item, list[Vote]] = {}
    for vote in votes:
        low, high = sorted((vote.model_a, vote.model_b))
        item = (vote.prompt_id, vote.sample, low, high)
        if vote.axis == axis and item in records:
            by_item.setdefault(item, []).append(vote)
    if not by_item:
        return None
    items = list(by_item)
    prompts = [item[0] for item in items]
    judge = [label_of(records[item], axis) for item in items]
    people = [majority(by_item[item]) for item in items]
    found = agreement(judge, people, prompts, rng=rng)
    same = [
        (float(j == h), p)
        for j, h, p in zip(judge, people, prompts, strict=True)
        if j is not None and "tie" not in (j, h)
    ]
    voters = sorted({vote.voter for found in by_item.values() for vote in found})
    return Human(
        voters=len(voters),
        votes=sum(map(len, by_item.values())),
        accuracy=share([s for s, _ in same], [p for _, p in same], "no pair decisive for both"),
        kappa=measure(found.kappa, found.n_items, found.n_prompts),
        alpha=measure(found.alpha, found.n_items, found.n_prompts),
        among_people=_among(by_item, voters, rng),
    )


def _among(
    by_item: Mapping[Item, Sequence[Vote]], voters: Sequence[str], rng: np.random.Generator
) -> Measure:
    if len(voters) < 2:
        return NotMeasured(reason="one person voted")
    rows = [
        [
            next((_label(vote) for vote in votes if vote.voter == voter), None)
            for votes in by_item.values()
        ]
        for voter in voters
    ]
    prompts = [item[0] for item in by_item]
    found = krippendorff_alpha(rows, prompts, rng=rng)
    if isinstance(found, Undefined):
        return NotMeasured(reason=found.reason)
    return measure(found, len(prompts), len(set(prompts)))


def _label(vote: Vote) -> str:
    return "tie" if vote.winner is None else f"win {vote.winner}"


def by_item(records: Sequence[VerdictRecord]) -> dict[Item, VerdictRecord]:
    """First repeats, by what they are about."""
    return {item_of(record): record for record in records if record.repeat == 0}
