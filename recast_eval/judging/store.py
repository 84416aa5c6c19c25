"""``replies.sqlite``: every raw reply, by the content of its question. Several processes share it.

Only complete replies are reused. Failures are logged and asked again by the next run; those of a
run that was killed count as final for the run that takes over, because they were paid for.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

from recast_eval.judging.cards import JudgeCard
from recast_eval.judging.records import VerdictRecord
from recast_eval.judging.store_calls import PAID, CallLog, CallRow
from recast_eval.judging.store_claims import Claims, Run

__all__ = ["PAID", "AskRow", "CallRow", "ReplyStore", "Run", "Spec"]


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

    @property
    def name(self) -> tuple[str, int, str, str, int, int]:
        """What makes it unique in its setting."""
        return (
            self.prompt_id,
            self.sample,
            self.model_a,
            self.model_b,
            self.repeat,
            self.ordinal,
        )


def _spec(row: Sequence[Any]) -> Spec:
    card = JudgeCard.model_validate_json(row[2])
    return Spec(row[0], row[1], card, row[3], row[4], tuple(json.loads(row[5])))


class ReplyStore(Claims, CallLog):
    """Settings and questions, who asks them, what came of them."""

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
        return [_spec(row) for row in rows]

    def spec(self, name: str) -> Spec | None:
        """A setting, whether or not it is its judge's latest: a jury's members stay its members."""
        rows = self._rows(
            "SELECT spec, judge, card, model, base_url, members FROM specs WHERE spec=?", (name,)
        )
        return _spec(rows[0]) if rows else None

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

    def forget_others(self, spec: str, kept: Set[tuple[Any, ...]]) -> None:
        """Drop questions about the same two models that are in no plan any more.

        They may be of prompts that left the table, or of the pair the other way round. Their
        replies stay, and count again as soon as they are planned again.

        Args:
            spec: The setting.
            kept: ``AskRow.name`` of each question of the plan.
        """
        met = {frozenset(name[2:4]) for name in kept}
        with self._writing() as db:
            found = db.execute(
                "SELECT prompt_id, sample, model_a, model_b, repeat, ordinal FROM asks"
                " WHERE spec=?",
                (spec,),
            ).fetchall()
            db.executemany(
                "DELETE FROM asks WHERE spec=? AND prompt_id=? AND sample=? AND model_a=?"
                " AND model_b=? AND repeat=? AND ordinal=?",
                [(spec, *n) for n in found if n not in kept and frozenset(n[2:4]) in met],
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
        """Add or renew records of a judge that has no replies.

        What it said before about the same two models is dropped, as in ``forget_others``.
        """
        kept: set[str] = set()
        met: set[frozenset[str]] = set()
        with self._writing() as db:
            for record in records:
                kept.add(key := json.dumps(record.key()))
                met.add(frozenset((record.model_a, record.model_b)))
                db.execute(
                    "INSERT OR REPLACE INTO fixed VALUES (?,?,?)",
                    (judge, key, record.model_dump_json()),
                )
            found = db.execute("SELECT key FROM fixed WHERE judge=?", (judge,)).fetchall()
            old = [
                (judge, key)
                for (key,) in found
                if key not in kept and frozenset(json.loads(key)[3:5]) in met
            ]
            db.executemany("DELETE FROM fixed WHERE judge=? AND key=?", old)

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
