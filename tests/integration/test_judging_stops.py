"""Runs that end badly: a full disk, an interrupt, a dead process. Little is paid, nothing waits."""

import asyncio
import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from support.judge_server import JudgeServer, Script
from support.judging import World

from recast_eval.errors import DataError
from recast_eval.judging.asking import Answered
from recast_eval.judging.blocking import run_blocking
from recast_eval.judging.cards import load_card
from recast_eval.judging.executor import Options, run_judge
from recast_eval.judging.pairs import make_pairs
from recast_eval.judging.planning import Plan, spec_of
from recast_eval.judging.reading import read_call
from recast_eval.judging.store import CallRow, ReplyStore
from recast_eval.judging.transport import OpenAITransport
from recast_eval.judging.workflow import STORE, Bench, Endpoint, Judged, batch, judge


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


def test_a_run_that_broke_off_does_not_block_the_next_of_the_same_process(world: World) -> None:
    """A notebook: the cell is interrupted and run again."""
    bench = Bench((load_card("pairwise-v1"),), None, world.sets)

    def go(server: JudgeServer, on_answer: Callable[[Answered], None]) -> Judged:
        options = Options(concurrency=4, on_answer=on_answer)
        endpoint = Endpoint(server.url, "mock", "RECAST_TEST_NO_KEY")
        return judge(replace(bench, endpoint=endpoint), world.root / "out", options)

    def interrupt(answer: Answered) -> None:
        raise KeyboardInterrupt

    with JudgeServer(Script(delay_s=0.02)) as server:
        with pytest.raises(KeyboardInterrupt):
            go(server, interrupt)
        began = time.monotonic()
        done = go(server, lambda answer: None)
        assert time.monotonic() - began < 60  # a claim lasts 34 minutes
    assert world.states() == {"win": 60}
    assert done.reports["pairwise-v1@mock"].lost <= 4
    with sqlite3.connect(world.root / "out" / STORE) as db:
        assert db.execute("SELECT COUNT(*) FROM runs WHERE finished IS NULL").fetchone() == (0,)
    db.close()


def test_a_dead_process_that_had_our_id_does_not_block_us(world: World) -> None:
    """A container that starts again: same host, same process id."""
    with JudgeServer() as server:
        world.run(server)
        db = sqlite3.connect(world.root / "out" / STORE)
        with db:
            db.execute("DELETE FROM calls")
            row = db.execute("SELECT spec, pid, host, started FROM runs").fetchone()
            db.execute("INSERT INTO runs VALUES ('dead', ?, ?, ?, ?, NULL, 0)", row)
            until = time.time() + 2040
            db.execute(
                "INSERT INTO claims SELECT DISTINCT key, 'dead', ?, ?, ? FROM asks",
                (row[1], row[2], until),
            )
        db.close()
        done = world.run(server)
    assert world.states() == {"win": 60}
    assert done.reports["pairwise-v1@mock"].lost == 120


def test_an_interrupt_inside_a_running_loop_ends_the_work_first() -> None:
    ended = []

    async def work() -> None:
        try:
            threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def cell() -> None:
        run_blocking(work())

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
    finally:
        loop.close()
        signal.signal(signal.SIGINT, before)
    assert ended == [True]


def test_who_is_waited_for_is_said_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with JudgeServer(Script(delay_s=0.3)) as server:

        async def both() -> None:
            await asyncio.gather(*(asyncio.to_thread(few.run, server) for _ in range(2)))

        few = World.make(world.root / "few", prompts=8)
        asyncio.run(both())
        assert server.calls == 16
    said = [r.getMessage() for r in caplog.records if "waiting for" in r.getMessage()]
    assert 1 <= len(said) <= 2
    assert all(f"process {os.getpid()}, which is asking" in line for line in said)


HUGE = "1" * 5000
ODD = {
    "a number of 5000 digits": f'{{"overall": {HUGE}}}',
    "a strength of 400 digits": '{"overall": "A", "faithfulness": "A", "aesthetics": "A", '
    f'"strength": {HUGE[:400]}}}',
    "half a character": "I prefer the first \ud83d",
    "half a pair in JSON": '{"overall": "\udc00", "reason": "\ud83d"}',
    "nested too deep": "[" * 100_000,
}


@pytest.mark.parametrize("name", ODD)
def test_whatever_a_reply_holds_it_is_kept(tmp_path: Path, name: str) -> None:
    """It is paid for: in the store, in the ledger, and no fault of ours."""
    world = World.make(tmp_path, prompts=2)
    with JudgeServer(Script(replay=lambda question: ODD[name])) as server:
        done = world.run(server)
        world.run(server)  # reads what is there
    assert "internal" not in world.states()
    assert done.ledger.replies == done.ledger.calls == 4
    with sqlite3.connect(world.root / "out" / STORE) as db:
        (kept,) = db.execute("SELECT COUNT(*) FROM calls WHERE reply IS NOT NULL").fetchone()
    db.close()
    assert kept == server.calls


def test_one_odd_line_does_not_hold_up_a_batch(tmp_path: Path) -> None:
    world = World.make(tmp_path, prompts=4)
    out = tmp_path / "out"
    with JudgeServer() as server:
        endpoint = Endpoint(server.url, "mock", "RECAST_TEST_NO_KEY")
        bench = Bench((load_card("pairwise-v1"),), endpoint, world.sets)
        batch("write", bench, out, Options())
        batch("submit", bench, out, Options())
        lines = server.files["out-0"].splitlines()
        row = json.loads(lines[0])
        row["response"]["body"]["choices"][0]["message"]["content"] = f'{{"overall": {HUGE}}}'
        lines[0] = json.dumps(row).encode()  # the orders of one pair follow each other
        lines[1] = lines[1].replace(b'"prompt_tokens": 1000', f'"prompt_tokens": {HUGE}'.encode())
        lines[2] = lines[2][:-20]
        lines[4] = b'["not", "a", "row"]'
        server.files["out-0"] = b"\n".join(lines)
        batch("collect", bench, out, Options())
    assert world.states()["win"] == 1
    with sqlite3.connect(out / STORE) as db:
        (kept,) = db.execute("SELECT COUNT(*) FROM calls WHERE reply IS NOT NULL").fetchone()
        (still,) = db.execute("SELECT COUNT(*) FROM batches WHERE collected IS NULL").fetchone()
    db.close()
    assert (kept, still) == (6, 0)
    ledger = json.loads((out / "ledger.json").read_text("utf-8"))
    assert (ledger["replies"], ledger["untold"]["input_tokens"]) == (6, 1)


def test_a_fault_of_the_reader_costs_no_reply() -> None:
    call = CallRow(key="k", state="ok", final=True, reply="OVERALL: A")
    read = read_call(load_card("pairwise-v1"), call, prompt=cast(str, 7), nonce=None)
    assert read.reason == "no_verdict"
    assert "our reader failed" in read.detail
