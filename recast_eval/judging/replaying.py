"""Make ``verdicts.jsonl`` again from the store, and say what today's parser reads otherwise."""

from dataclasses import dataclass
from pathlib import Path

from recast_eval.judging.derive import Tally, all_records, write_verdicts
from recast_eval.judging.records import AxisOutcome, VerdictRecord
from recast_eval.judging.store import ReplyStore
from recast_eval.records import read_records


@dataclass(frozen=True, slots=True)
class Replayed:
    """Old against new."""

    tally: Tally
    changes: tuple[str, ...]
    """One line a record and axis that changed, appeared or vanished."""


def replay(folder: Path, *, write: bool = True) -> Replayed:
    """Read every stored reply again; no call is made.

    Args:
        folder: Of the evaluation.
        write: Whether ``verdicts.jsonl`` is renewed.
    """
    path = folder / "verdicts.jsonl"
    old = {r.key(): r.axes for r in read_records(path, VerdictRecord)} if path.is_file() else {}
    changes: list[str] = []
    tally = Tally()
    with ReplyStore(folder / "replies.sqlite") as store:
        for record in all_records(store):
            tally.add(record)
            before = old.pop(record.key(), None)
            changes += _differences(record, before)
        if write:
            write_verdicts(store, path)
    changes += [f"{' '.join(map(str, key))}: no longer in the store" for key in old]
    return Replayed(tally, tuple(changes))


def _differences(record: VerdictRecord, before: dict[str, AxisOutcome] | None) -> list[str]:
    name = f"{record.judge} {record.prompt_id} sample {record.sample} repeat {record.repeat}"
    if before is None:
        return [f"{name}: new"]
    return [
        f"{name} {axis}: {_word(before.get(axis))} -> {_word(outcome)}"
        for axis, outcome in record.axes.items()
        if before.get(axis) != outcome
    ]


def _word(outcome: AxisOutcome | None) -> str:
    if outcome is None:
        return "nothing"
    return outcome.winner or outcome.reason or outcome.state
