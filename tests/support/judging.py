"""Run a judge against the loopback server, in this process."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recast_eval.judging.cards import JudgeCard, Price, load_card
from recast_eval.judging.executor import Options
from recast_eval.judging.pairs import ImageSet, read_image_set
from recast_eval.judging.records import VerdictRecord
from recast_eval.judging.retrying import RetryPolicy
from recast_eval.judging.workflow import Bench, Endpoint, Judged, judge
from recast_eval.records import read_records
from support.image_folders import make_folder
from support.judge_server import JudgeServer


async def no_sleep(seconds: float) -> None:
    """Retries at once."""
    del seconds
    await asyncio.sleep(0)


@dataclass
class World:
    """Image folders and a place for results."""

    root: Path
    sets: tuple[ImageSet, ...]

    @classmethod
    def make(cls, root: Path, prompts: int, models: Sequence[str] = ("A", "B")) -> "World":
        """Folders of noise, one a model."""
        sets = [
            read_image_set(make_folder(root / name, prompts=prompts, seed=i), name)
            for i, name in enumerate(models)
        ]
        return cls(root, tuple(sets))

    def again(self) -> "World":
        """The same folders, read again."""
        return World(self.root, tuple(read_image_set(s.folder, s.model) for s in self.sets))

    def run(
        self,
        server: JudgeServer,
        card: JudgeCard | str = "pairwise-v1",
        *,
        out: str = "out",
        max_cost: float | None = None,
        attempts: int = 4,
        concurrency: int = 16,
        key_env: str = "RECAST_TEST_NO_KEY",
        facts: Any = None,
    ) -> Judged:
        """Judge every pair."""
        chosen = load_card(card) if isinstance(card, str) else card
        options = Options(
            concurrency=concurrency,
            max_cost=max_cost,
            price=None if max_cost is None else Price(input=1.0, output=1.0),
            policy=RetryPolicy(attempts=attempts, sleep=no_sleep, cap_s=0.05),
            facts=facts,
        )
        bench = Bench((chosen,), Endpoint(server.url, "mock", key_env), self.sets)
        return judge(bench, self.root / out, options)

    def records(self, out: str = "out") -> list[VerdictRecord]:
        """What was written."""
        return read_records(self.root / out / "verdicts.jsonl", VerdictRecord)

    def table(self, out: str = "out") -> dict[str, Any]:
        """Pair -> outcomes, without what depends on the way."""
        return {
            json.dumps(r.key()[1:]): {a: o.model_dump() for a, o in r.axes.items()}
            for r in self.records(out)
        }

    def states(self, out: str = "out", axis: str = "overall") -> Counter[str]:
        """State or reason -> pairs."""
        return Counter(r.axes[axis].reason or r.axes[axis].state for r in self.records(out))
