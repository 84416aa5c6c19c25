"""``replies.sqlite``: every raw reply, by the content of its question. Several processes share it.

Only complete replies are reused. Failures are logged and asked again by the next run; those of a
run that was killed count as final for the run that takes over, because they were paid for.
"""

import json
import os
import socket
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from recast_eval.errors import DataError
from recast_eval.judging.cards import JudgeCard
from recast_eval.judging.records import Usage, VerdictRecord
from recast_eval.records import digest

SCHEMA_VERSION: Final = "1"
PAID: Final = frozenset(
    ("empty", "no_verdict", "ambiguous", "out_of_range", "truncated", "refused", "content_filter")
)
"""States of a call that brought a reply, though not a verdict."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A judge in one setting."""

    spec: str
    judge: str
    card: JudgeCard
    model: str
    base_url: str
    members: tuple[str, ...] = ()
    """Specs of a jury's members."""


@dataclass(frozen=True, slots=True)
class AskRow:
    """One question of one observation."""

    prompt_id: str
    sample: int
    model_a: str
    model_b: str
    repeat: int
    ordinal: int
    key: str | None
    """None: it cannot be asked; ``info`` says why."""
    nonce: str | None
    first: str
    second: str
    info: str


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


class ReplyStore:
    """The file, opened. Safe to call from several threads; one transaction at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._host = digest(socket.gethostname())  # tells machines apart without naming them
        self._db = sqlite3.connect(
            path, timeout=60, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(
                files("recast_eval.judging").joinpath("schema.sql").read_text("utf-8")
            )
            self._db.execute(
                "INSERT OR IGNORE INTO meta VALUES ('schema_version', ?)", (SCHEMA_VERSION,)
            )
            found = self._db.execute(
                "SELECT value FROM meta WHERE name='schema_version'"
            ).fetchone()
        except sqlite3.DatabaseError as error:
            raise DataError(f"not a store of replies ({error})", path=path) from error
        if found[0] != SCHEMA_VERSION:
            raise DataError(f"schema {found[0]}, this version reads {SCHEMA_VERSION}", path=path)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> "ReplyStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    # -- settings and questions ------------------------------------------------------------

    def register(self, spec: Spec) -> None:
        """Make this the latest setting of its judge."""
        with self._writing() as db:
            db.execute(
                "INSERT INTO specs VALUES (?,?,?,?,?,?,?) "
                "ON CONFLICT (spec) DO UPDATE SET used=excluded.used",
                (
                    spec.spec,
                    spec.judge,
                    spec.card.model_dump_json(),
                    spec.model,
                    spec.base_url,
                    json.dumps(spec.members),
                    time.time(),
                ),
            )

    def latest_specs(self) -> list[Spec]:
        """The latest setting of each judge, in the order of their names."""
        rows = self._rows(
            "SELECT spec, judge, card, model, base_url, members, MAX(used) FROM specs "
            "GROUP BY judge ORDER BY judge"
        )
        return [
            Spec(
                r[0], r[1], JudgeCard.model_validate_json(r[2]), r[3], r[4], tuple(json.loads(r[5]))
            )
            for r in rows
        ]

    def other_settings(self, spec: Spec) -> int:
        """How many earlier settings of this judge are set aside in the store."""
        rows = self._rows(
            "SELECT COUNT(*) FROM specs WHERE judge=? AND spec<>?", (spec.judge, spec.spec)
        )
        return int(rows[0][0])

    def plan(self, spec: str, asks: Iterable[AskRow]) -> None:
        """Add questions, or renew them."""
        with self._writing() as db:
            db.executemany(
                "INSERT OR REPLACE INTO asks VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
                (
                    (
                        spec,
                        a.prompt_id,
                        a.sample,
                        a.model_a,
                        a.model_b,
                        a.repeat,
                        a.ordinal,
                        a.key,
                        a.nonce,
                        a.first,
                        a.second,
                        a.info,
                    )
                    for a in asks
                ),
            )

    def asks(self, spec: str) -> Iterator[AskRow]:
        """All questions of a setting; the orders of a pair stand together."""
        last: tuple[Any, ...] = ("", -1, "", "", -1, -1)
        while True:  # by pages: memory stays flat, and no read is open while others write
            rows = self._rows(
                "SELECT prompt_id, sample, model_a, model_b, repeat, ordinal, key, nonce, first,"
                " second, info FROM asks WHERE spec=? AND "
                "(prompt_id, sample, model_a, model_b, repeat, ordinal) > (?,?,?,?,?,?) "
                "ORDER BY prompt_id, sample, model_a, model_b, repeat, ordinal LIMIT 512",
                (spec, *last),
            )
            if not rows:
                return
            for row in rows:
                yield AskRow(*row)
            last = rows[-1][:6]

    # -- runs and claims -------------------------------------------------------------------

    def begin(self, spec: str) -> "Run":
        """Start a run, and take over runs of the same setting whose process is gone."""
        run = Run(uuid.uuid4().hex, [])
        with self._writing() as db:
            open_runs = db.execute(
                "SELECT run, pid, host FROM runs WHERE spec=? AND finished IS NULL", (spec,)
            ).fetchall()
            for name, pid, host in open_runs:
                run.trusted.append(name)
                if self._gone(pid, host):
                    run.lost += db.execute("DELETE FROM claims WHERE run=?", (name,)).rowcount
            db.execute(
                "INSERT INTO runs VALUES (?,?,?,?,?,NULL,?)",
                (run.run, spec, os.getpid(), self._host, time.time(), run.lost),
            )
        return run

    def finish(self, run: "Run") -> None:
        """Close a run, and those of dead processes that it took over."""
        with self._writing() as db:
            for name in [run.run, *run.trusted]:
                row = db.execute("SELECT pid, host FROM runs WHERE run=?", (name,)).fetchone()
                if name == run.run or self._gone(*row):
                    db.execute("UPDATE runs SET finished=? WHERE run=?", (time.time(), name))
            db.execute("DELETE FROM claims WHERE run=?", (run.run,))

    def _gone(self, pid: int, host: str) -> bool:
        if host != self._host:
            return False  # another machine: only the lease tells
        if pid == os.getpid():
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    def claim(self, keys: Sequence[str], run: "Run", lease_s: float) -> set[str]:
        """Reserve questions for this run; those that another live process holds are left out."""
        now = time.time()
        got: set[str] = set()
        with self._writing() as db:
            for key in keys:
                row = db.execute("SELECT run, pid, host, until FROM claims WHERE key=?", (key,))
                held = row.fetchone()
                if (
                    held
                    and held[0] != run.run
                    and held[3] > now
                    and not self._gone(held[1], held[2])
                ):
                    continue
                db.execute(
                    "INSERT OR REPLACE INTO claims VALUES (?,?,?,?,?)",
                    (key, run.run, os.getpid(), self._host, now + lease_s),
                )
                got.add(key)
        return got

    def answered_by_others(self, keys: Sequence[str], run: "Run") -> set[str]:
        """Those of the questions that another run has brought to a final state."""
        found: set[str] = set()
        with self._lock:
            for key in keys:
                row = self._db.execute(
                    "SELECT 1 FROM calls WHERE key=? AND final=1 AND run<>? LIMIT 1", (key, run.run)
                ).fetchone()
                if row:
                    found.add(key)
        return found

    def release(self, keys: Iterable[str]) -> None:
        """Give up claims."""
        with self._writing() as db:
            db.executemany("DELETE FROM claims WHERE key=?", ((k,) for k in keys))

    # -- calls -----------------------------------------------------------------------------

    def write(self, run: "Run", calls: Sequence[CallRow]) -> None:
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
                        c.detail,
                        c.reply,
                        c.finish,
                        c.refusal,
                        c.usage.model_dump_json(exclude_none=True),
                        json.dumps(c.mode, sort_keys=True),
                        c.model,
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

    def spent(self, runs: Sequence[str]) -> float:
        """US dollars known to be spent by these runs."""
        found = 0.0
        for usage, _, _, _, count in self.spent_rows(runs):
            found += (json.loads(usage).get("cost_usd") or 0.0) * count
        return found

    # -- images ----------------------------------------------------------------------------

    def image(self, sha256: str, rule: str, level: int) -> tuple[str, bool, int, int] | None:
        """(digest of what is sent, whether it fits, width, height) of a file seen before."""
        rows = self._rows(
            "SELECT sent, fits, width, height FROM images WHERE sha256=? AND rule=? AND level=?",
            (sha256, rule, level),
        )
        return (rows[0][0], bool(rows[0][1]), rows[0][2], rows[0][3]) if rows else None

    def add_images(self, rows: Iterable[tuple[str, str, int, str, bool, int, int]]) -> None:
        """Remember (sha256, rule, level, sent, fits, width, height)."""
        with self._writing() as db:
            db.executemany("INSERT OR REPLACE INTO images VALUES (?,?,?,?,?,?,?)", rows)

    # -- records that are not made of replies ----------------------------------------------

    def put_fixed(self, judge: str, records: Iterable[VerdictRecord]) -> None:
        """Add or renew records of a judge that has no replies."""
        with self._writing() as db:
            db.executemany(
                "INSERT OR REPLACE INTO fixed VALUES (?,?,?)",
                ((judge, json.dumps(r.key()), r.model_dump_json()) for r in records),
            )

    def fixed(self) -> Iterator[VerdictRecord]:
        """All such records."""
        last = ("", "")
        while True:
            rows = self._rows(
                "SELECT judge, key, record FROM fixed WHERE (judge, key) > (?,?) "
                "ORDER BY judge, key LIMIT 512",
                last,
            )
            if not rows:
                return
            for row in rows:
                yield VerdictRecord.model_validate_json(row[2])
            last = rows[-1][:2]

    # -- batches ---------------------------------------------------------------------------

    def put_batch(self, batch: str, spec: str, file: str) -> None:
        """Remember a submitted batch."""
        with self._writing() as db:
            db.execute(
                "INSERT INTO batches VALUES (?,?,?,?,NULL)", (batch, spec, file, time.time())
            )

    def open_batches(self, spec: str) -> list[tuple[str, str]]:
        """(batch, file) of the submitted batches whose replies are not here yet."""
        rows = self._rows(
            "SELECT batch, file FROM batches WHERE spec=? AND collected IS NULL ORDER BY submitted",
            (spec,),
        )
        return [(r[0], r[1]) for r in rows]

    def close_batch(self, batch: str) -> None:
        """A batch's replies are in."""
        with self._writing() as db:
            db.execute("UPDATE batches SET collected=? WHERE batch=?", (time.time(), batch))


@dataclass(slots=True)
class Run:
    """One invocation of a judge on a store."""

    run: str
    trusted: list[str]
    """Unfinished runs whose paid failures stand."""
    lost: int = 0
    """Calls that were in flight when an earlier process died: perhaps paid, never received."""
