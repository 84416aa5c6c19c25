"""The SQLite file behind ``replies.sqlite``: opened, checked, one transaction at a time."""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Self

from tenacity import retry, retry_if_exception, stop_after_delay, wait_random

from recast_eval.errors import DataError

SCHEMA_VERSION: Final = "1"


def _is_busy(error: BaseException) -> bool:
    return (
        isinstance(error, sqlite3.OperationalError)
        and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
    )


@retry(
    retry=retry_if_exception(_is_busy),
    stop=stop_after_delay(60),
    wait=wait_random(0.01, 0.1),
    reraise=True,
)
def _use_wal(db: sqlite3.Connection) -> None:
    """Two that open a new file at once: SQLite refuses one of them without its usual waiting."""
    db.execute("PRAGMA journal_mode=WAL")


class StoreFile:
    """Safe to call from several threads and processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._db = sqlite3.connect(
            path, timeout=60, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            _use_wal(self._db)
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._explained():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk may have ended it already
                    self._db.execute("ROLLBACK")
                raise

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._lock, self._explained():
            return self._db.execute(sql, values).fetchall()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """A full disk, a damaged file, a lock that stays: one line that names the file."""
        try:
            yield
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise  # ours, not the file's
        except sqlite3.DatabaseError as error:
            remedy = "see to its disk, then run the same command again: it goes on from here"
            raise DataError(f"{error}: {remedy}", path=self.path) from error
