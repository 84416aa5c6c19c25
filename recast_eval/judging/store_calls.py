"""The log of calls: what was asked, what came of it, what it cost."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from recast_eval.judging.records import Usage
from recast_eval.judging.store_claims import Run
from recast_eval.judging.store_file import StoreFile

PAID: Final = frozenset(
    ("empty", "no_verdict", "ambiguous", "out_of_range", "truncated", "refused", "content_filter")
)
"""States of a call that brought a reply, though not a verdict."""


@dataclass(frozen=True, slots=True)
class CallRow:
    """One call and what came of it."""

    key: str
    state: str
    final: bool
    detail: str = ""
    reply: str | None = None
    finish: str | None = None
    refusal: str | None = None
    usage: Usage = field(default_factory=Usage)
    mode: dict[str, str] = field(default_factory=dict)
    model: str = ""
    seconds: float = 0.0
    at: float = 0.0


def _storable(text: str | None) -> str | None:
    """A reply cut short may end in half a character, which no file takes: a question mark."""
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8")


class Spent(NamedTuple):
    """Money of some runs. Unknown is not zero."""

    known: float
    """US dollars."""
    untold: int
    """Calls that ended without a word on their cost."""
    lost: int
    """Calls that were on their way when a process died, at most."""


class CallLog(StoreFile):
    """The part of the store that only grows."""

    def write(self, run: Run, calls: Sequence[CallRow]) -> None:
        """Log calls in one transaction; final ones end their claim."""
        with self._writing() as db:
            db.executemany(
                "INSERT INTO calls (key, run, at, state, final, detail, reply, finish, refusal,"
                " usage, mode, model, seconds) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
                [
                    (
                        c.key,
                        run.run,
                        c.at or time.time(),
                        c.state,
                        int(c.final),
                        _storable(c.detail),
                        _storable(c.reply),
                        _storable(c.finish),
                        _storable(c.refusal),
                        c.usage.model_dump_json(exclude_none=True),
                        json.dumps(c.mode, sort_keys=True),
                        _storable(c.model),
                        c.seconds,
                    )
                    for c in calls
                ],
            )
            db.executemany("DELETE FROM claims WHERE key=?", [(c.key,) for c in calls if c.final])

    def any_calls(self) -> bool:
        """Whether anything was ever asked."""
        return bool(self._rows("SELECT 1 FROM calls LIMIT 1"))

    def calls(self, key: str) -> list[tuple[str, CallRow]]:
        """(run, call) of every call for a question, oldest first."""
        rows = self._rows(
            "SELECT run, key, state, final, detail, reply, finish, refusal, usage, mode, model,"
            " seconds, at FROM calls WHERE key=? ORDER BY id",
            (key,),
        )
        return [
            (
                r[0],
                CallRow(
                    key=r[1],
                    state=r[2],
                    final=bool(r[3]),
                    detail=r[4],
                    reply=r[5],
                    finish=r[6],
                    refusal=r[7],
                    usage=Usage.model_validate_json(r[8]),
                    mode=json.loads(r[9]),
                    model=r[10],
                    seconds=r[11],
                    at=r[12],
                ),
            )
            for r in rows
        ]

    def turns(self, keys: Sequence[str]) -> dict[str, int]:
        """How often each question was asked to an end; those never asked are left out."""
        sql = "SELECT COUNT(*) FROM calls WHERE key=? AND final=1 AND seconds > 0"
        found = {key: int(self._rows(sql, (key,))[0][0]) for key in keys}
        return {key: count for key, count in found.items() if count}

    def spent_rows(self, runs: Sequence[str] | None = None) -> list[tuple[str, str, str, str, int]]:
        """(usage, model, state, spec, count) groups of calls, for the ledger."""
        where = "WHERE calls.seconds > 0"  # the others were never sent
        values: Sequence[str] = ()
        if runs is not None:
            where += f" AND calls.run IN ({','.join('?' * len(runs))})"
            values = runs
        return self._rows(
            "SELECT usage, calls.model, state, runs.spec, COUNT(*) FROM calls "  # noqa: S608
            f"JOIN runs ON runs.run = calls.run {where} GROUP BY 1, 2, 3, 4",
            values,
        )

    def spent(self, runs: Sequence[str]) -> Spent:
        """What these runs have spent, and how much of it is not known."""
        names = ",".join("?" * len(runs))
        rows = self._rows(
            "SELECT usage, SUM(final OR reply IS NOT NULL), COUNT(*) FROM calls "  # noqa: S608
            f"WHERE seconds > 0 AND run IN ({names}) GROUP BY usage",
            runs,
        )
        known, untold = 0.0, 0
        for usage, ended, count in rows:
            cost = json.loads(usage).get("cost_usd")
            if cost is None:
                untold += ended
            else:
                known += cost * count
        lost = self._rows(
            f"SELECT COALESCE(SUM(lost), 0) FROM runs WHERE run IN ({names})",  # noqa: S608
            runs,
        )
        return Spent(known, untold, lost[0][0])
