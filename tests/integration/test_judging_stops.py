"""Runs that end badly: a full disk, an interrupt, a dead process. Little is paid, nothing waits."""

import asyncio
from pathlib import Path

import pytest
from support.judge_server import JudgeServer, Script
from support.judging import World

from recast_eval.errors import DataError
from recast_eval.judging.cards import load_card
from recast_eval.judging.executor import Options, run_judge
from recast_eval.judging.pairs import make_pairs
from recast_eval.judging.planning import Plan, spec_of
from recast_eval.judging.store import ReplyStore
from recast_eval.judging.transport import OpenAITransport


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.make(tmp_path, prompts=60)


def test_a_store_that_is_full_ends_the_run_at_once(world: World) -> None:
    path = world.root / "replies.sqlite"

    async def go(server: JudgeServer, store: ReplyStore) -> None:
        def fill(plan: Plan) -> None:
            del plan
            (pages,) = store._db.execute("PRAGMA page_count").fetchone()
            store._db.execute(f"PRAGMA max_page_count={pages + 2}")

        transport = OpenAITransport(server.url)
        spec = spec_of(load_card("pairwise-v1"), "mock", server.url)
        options = Options(concurrency=8, on_planned=fill)
        try:
            await run_judge(spec, make_pairs(world.sets), store, transport, options)
        finally:
            await transport.aclose()

    with JudgeServer(Script(delay_s=0.05)) as server, ReplyStore(path) as store:
        with pytest.raises(DataError, match="full") as caught:
            asyncio.run(go(server, store))
        (kept,) = store._db.execute("SELECT COUNT(*) FROM calls WHERE reply IS NOT NULL").fetchone()
        assert 0 < kept <= server.calls <= 80 < 120
    assert caught.value.path == path
