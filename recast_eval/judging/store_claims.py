"""Runs of a judge and their claims: who is asking what right now, and who takes over from the dead.

Processes that share a store pay for each question once.
"""

import os
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from recast_eval.errors import DataError
from recast_eval.judging.store_file import StoreFile
from recast_eval.records import digest


@dataclass(slots=True)
class Run:
    """One invocation of a judge on a store."""

    run: str
    trusted: list[str]
    """Unfinished runs whose paid failures stand."""
    lost: int = 0
    """Calls that were in flight when an earlier run broke off: perhaps paid, never received."""
    on_way: set[str] = field(default_factory=set)
    """Questions in flight now."""


_ACTIVE: Final[set[str]] = set()
"""Runs of this process. A run with our process id that is not among them is gone: it was broken
off, or an earlier process (say, in the same container) had the same id."""


class Claims(StoreFile):
    """The part of the store that tells processes apart."""

    @cached_property
    def _host(self) -> str:
        return digest(socket.gethostname())  # tells machines apart without naming them

    @contextmanager
    def running(self, spec: str) -> Iterator[Run]:
        """A run from ``begin`` to ``finish``; one that breaks off holds no question any longer.

        It stays open, as after a kill: the next run goes on with it, and with what it has spent.
        """
        run = self.begin(spec)
        try:
            yield run
        except BaseException:
            _ACTIVE.discard(run.run)
            with suppress(DataError):  # the reason is on its way up
                self._let_go(run)
            raise
        self.finish(run)

    def _let_go(self, run: Run) -> None:
        """Free the questions for anyone at once; those in flight stay, to be counted as lost."""
        with self._writing() as db:
            held = db.execute("SELECT key FROM claims WHERE run=?", (run.run,)).fetchall()
            unsent = [(key,) for (key,) in held if key not in run.on_way]
            db.executemany("DELETE FROM claims WHERE key=?", unsent)
            db.execute("UPDATE claims SET until=0 WHERE run=?", (run.run,))

    def begin(self, spec: str) -> Run:
        """Start a run, and take over runs of the same setting whose process is gone."""
        run = Run(uuid.uuid4().hex, [])
        _ACTIVE.add(run.run)
        with self._writing() as db:
            open_runs = db.execute(
                "SELECT run, pid, host FROM runs WHERE spec=? AND finished IS NULL", (spec,)
            ).fetchall()
            for name, pid, host in open_runs:
                run.trusted.append(name)
                if self._gone(name, pid, host):
                    run.lost += db.execute("DELETE FROM claims WHERE run=?", (name,)).rowcount
            db.execute(
                "INSERT INTO runs VALUES (?,?,?,?,?,NULL,?)",
                (run.run, spec, os.getpid(), self._host, time.time(), run.lost),
            )
        return run

    def finish(self, run: Run) -> None:
        """Close a run, and those of dead processes that it took over."""
        with self._writing() as db:
            for name in [run.run, *run.trusted]:
                row = db.execute("SELECT pid, host FROM runs WHERE run=?", (name,)).fetchone()
                if name == run.run or self._gone(name, *row):
                    db.execute("UPDATE runs SET finished=? WHERE run=?", (time.time(), name))
            db.execute("DELETE FROM claims WHERE run=?", (run.run,))
        _ACTIVE.discard(run.run)

    def _gone(self, run: str, pid: int, host: str) -> bool:
        if host != self._host:
            return False  # another machine: only the lease tells
        if pid == os.getpid():
            return run not in _ACTIVE
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    def claim(self, keys: Sequence[str], run: Run, lease_s: float) -> set[str]:
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
                    and not self._gone(held[0], held[1], held[2])
                ):
                    continue
                db.execute(
                    "INSERT OR REPLACE INTO claims VALUES (?,?,?,?,?)",
                    (key, run.run, os.getpid(), self._host, now + lease_s),
                )
                got.add(key)
        return got

    def answered_by_others(self, keys: Sequence[str], run: Run) -> set[str]:
        """Those of the questions that another run has brought to a final state."""
        sql = "SELECT 1 FROM calls WHERE key=? AND final=1 AND run<>? LIMIT 1"
        return {key for key in keys if self._rows(sql, (key, run.run))}

    def holders(self, keys: Sequence[str]) -> list[str]:
        """Who is asking these questions, one line a process."""
        found: dict[tuple[int, str], list[float]] = {}
        for key in keys:
            for pid, host, until in self._rows(
                "SELECT pid, host, until FROM claims WHERE key=?", (key,)
            ):
                found.setdefault((pid, host), []).append(until)
        return [
            f"process {pid}{'' if host == self._host else ' of another machine'}, which is asking "
            f"{len(until)} questions, until {time.strftime('%H:%M', time.localtime(max(until)))} "
            "at the latest"
            for (pid, host), until in found.items()
        ]

    def release(self, keys: Iterable[str]) -> None:
        """Give up claims."""
        with self._writing() as db:
            db.executemany("DELETE FROM claims WHERE key=?", ((k,) for k in keys))
