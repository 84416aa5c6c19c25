"""``verdicts.jsonl`` is a function of the store: it can be thrown away and made again."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from recast_eval.judging.decide import (
    choices,
    combine_orders,
    compare_grades,
    jury_verdict,
    unscored,
)
from recast_eval.judging.reading import Read, read_call
from recast_eval.judging.records import AxisOutcome, OrderRecord, Usage, VerdictRecord, Vote
from recast_eval.judging.store import AskRow, CallRow, ReplyStore, Spec
from recast_eval.records import part_path


@dataclass(slots=True)
class Tally:
    """What a file of verdicts holds: for the last line of a command, and its exit status."""

    total: int = 0
    scored: int = 0
    """Records with a verdict on every axis."""
    by_judge: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Judge -> (scored, total)."""
    states: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """(judge, axis, state or reason) -> pairs."""

    def of(self, judges: Iterable[str]) -> tuple[int, int]:
        """(scored, total) of some judges."""
        found = [self.by_judge.get(name, (0, 0)) for name in judges]
        return sum(s for s, _ in found), sum(t for _, t in found)

    def add(self, record: VerdictRecord) -> None:
        """Count a record."""
        whole = all(o.state != "unscored" for o in record.axes.values())
        scored, total = self.by_judge.get(record.judge, (0, 0))
        self.by_judge[record.judge] = (scored + whole, total + 1)
        self.total += 1
        self.scored += whole
        for axis, outcome in record.axes.items():
            self.states[record.judge, axis, outcome.reason or outcome.state] += 1


def write_verdicts(store: ReplyStore, path: Path) -> Tally:
    """Write every record that the store can make, atomically, in a fixed order."""
    tally = Tally()
    part = part_path(path)
    with part.open("w", encoding="utf-8", newline="\n") as file:
        for record in all_records(store):
            tally.add(record)
            file.write(record.model_dump_json() + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    return tally


def all_records(store: ReplyStore) -> Iterator[VerdictRecord]:
    """Records of the latest setting of each judge, then of juries of models, then offline."""
    specs = store.latest_specs()
    for spec in specs:
        if not spec.members:
            yield from records_of(store, spec)
    for spec in specs:
        members = [store.spec(name) for name in spec.members]
        if members:
            yield from jury_records(store, spec, [m for m in members if m is not None])
    yield from store.fixed()


def records_of(store: ReplyStore, spec: Spec) -> Iterator[VerdictRecord]:
    """Records of one judge in one setting, pairs with the model first whose id sorts first."""
    for _, image in groupby(store.asks(spec.spec), key=lambda ask: (ask.prompt_id, ask.sample)):
        pairs: dict[tuple[str, str, int], list[AskRow]] = {}
        turned: dict[tuple[str, str, int], list[AskRow]] = {}
        for ask in image:
            if ask.model_a < ask.model_b:
                pairs.setdefault((ask.model_a, ask.model_b, ask.repeat), []).append(ask)
            else:
                ask = _turned(ask)
                turned.setdefault((ask.model_a, ask.model_b, ask.repeat), []).insert(0, ask)
        for _, asks in sorted((turned | pairs).items()):
            yield _record(store, spec, asks)


def _turned(ask: AskRow) -> AskRow:
    """A question of a pair that was written the other way round, as stores once held them."""
    info = json.loads(ask.info)
    info["image_a"], info["image_b"] = info["image_b"], info["image_a"]
    return replace(ask, model_a=ask.model_b, model_b=ask.model_a, info=json.dumps(info))


def _record(store: ReplyStore, spec: Spec, asks: list[AskRow]) -> VerdictRecord:
    head, card = asks[0], spec.card
    info = json.loads(head.info)
    heard = [_hear(store, spec, ask, json.loads(ask.info)) for ask in asks]
    orders = [order for order, _, _ in heard]
    grades: dict[str, dict[str, float]] = {}
    axes = tuple(card.axes)
    if card.kind == "pointwise":
        grades = {ask.first: read.grades for ask, (_, read, _) in zip(asks, heard, strict=True)}
        failed = next((o.reason for o in orders if o.reason is not None), None)
        outcome = (
            unscored(axes, failed)
            if failed
            else compare_grades(axes, grades, head.model_a, head.model_b)
        )
    else:
        outcome = combine_orders(axes, orders, head.model_a)
    models = [c.model for _, _, calls in heard for c in calls if c.model]
    return VerdictRecord(
        judge=spec.judge,
        judge_digest=card.digest,
        judge_kind=card.kind,
        judge_model=models[-1] if models else spec.model,
        base_url=spec.base_url,
        prompt_id=head.prompt_id,
        prompt=info["prompt"],
        category=info["category"],
        sample=head.sample,
        repeat=head.repeat,
        model_a=head.model_a,
        model_b=head.model_b,
        image_a=info["image_a"],
        image_b=info["image_b"],
        axes=outcome,
        orders=orders,
        order_free=card.kind == "pointwise",
        grades={m: g for m, g in grades.items() if g},
        usage=add_usage([o.usage for o in orders if o.attempts]),
    )


def _hear(
    store: ReplyStore, spec: Spec, ask: AskRow, info: dict[str, Any]
) -> tuple[OrderRecord, Read, list[CallRow]]:
    """The outcome of one question, and the calls made for it."""
    calls = [call for _, call in store.calls(ask.key)] if ask.key else []
    if ask.key is None:
        read, call = Read(reason=info["reason"], detail=info["detail"]), None
    else:
        read, call = best_reading(spec, calls, info["prompt"], ask.nonce)
    asked = [c for c in calls if c.seconds or c.reply is not None or not c.final]
    order = OrderRecord(
        first=ask.first,
        second=ask.second,
        verdict=choices(read.verdict, ask.first, ask.second),
        reason=read.reason,
        detail=read.detail,
        explanation=read.explanation,
        strength=read.strength,
        reply=ask.key,
        attempts=len(asked),
        mode=call.mode if call else {},
        usage=add_usage([c.usage for c in calls if c.reply is not None]),
    )
    return order, read, calls


def best_reading(
    spec: Spec, calls: Sequence[CallRow], prompt: str, nonce: str | None
) -> tuple[Read, CallRow | None]:
    """The newest verdict; without one, the newest final failure."""
    last: tuple[Read, CallRow] | None = None
    for call in reversed(calls):
        read = read_call(spec.card, call, prompt=prompt, nonce=nonce)
        if read.reason is None:
            return read, call
        if last is None and call.final:
            last = (read, call)
    return last or (Read(reason="not_asked", detail="the run stopped before this question"), None)


def jury_records(store: ReplyStore, spec: Spec, members: list[Spec]) -> Iterator[VerdictRecord]:
    """Records of a jury of models, from its members' records of the same pairs."""
    streams = [records_of(store, member) for member in members]
    families = [member.card.family or member.model for member in members]
    waiting = [next(stream, None) for stream in streams]
    while any(record is not None for record in waiting):
        key = min(record.key()[1:] for record in waiting if record is not None)
        votes, base = [], None
        for i, record in enumerate(waiting):
            if record is None or record.key()[1:] != key:
                continue
            base = base or record
            votes.append(Vote(judge=record.judge, family=families[i], axes=record.axes))
            waiting[i] = next(streams[i], None)
        if base is not None:
            yield base.model_copy(
                update={
                    "judge": spec.judge,
                    "judge_digest": spec.card.digest,
                    "judge_kind": "jury",
                    "judge_model": "",
                    "base_url": "",
                    "axes": jury_verdict(
                        tuple(spec.card.axes), votes, base.model_a, base.model_b, spec.card.quorum
                    ),
                    "orders": [],
                    "order_free": False,
                    "grades": {},
                    "votes": votes,
                    "usage": Usage(),
                }
            )


def add_usage(parts: Sequence[Usage]) -> Usage:
    """Sum over calls that were answered; a number that one of them lacks is unknown."""
    found: dict[str, Any] = {}
    for name in Usage.model_fields:
        values = [getattr(part, name) for part in parts]
        known = bool(values) and all(v is not None for v in values)
        found[name] = sum(values) if known else None
    return Usage(**found)


def states_of(records: Iterator[VerdictRecord]) -> dict[tuple[Any, ...], dict[str, AxisOutcome]]:
    """Key -> outcomes, for comparing two files."""
    return {record.key(): record.axes for record in records}
