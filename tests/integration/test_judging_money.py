"""A cost cap is hard by every way to a model, and what it allows is used."""

import sqlite3
from pathlib import Path

import pytest
from support.image_folders import make_folder
from support.judge_server import JudgeServer, Script
from support.judging import World
from typer.testing import CliRunner

import recast_eval.commands
from recast_eval.console import build_app
from recast_eval.errors import ConfigError, DataError
from recast_eval.judging.cards import Price, load_card
from recast_eval.judging.executor import Options
from recast_eval.judging.workflow import STORE, Bench, Endpoint, batch, estimate, judge

RATE = Price(input=1.0, output=1.0)
"""The price of ``World.run`` under a cap."""


def spent(server: JudgeServer) -> float:
    return server.calls * sum(server.script.tokens) / 1e6


def bench_of(world: World, server: JudgeServer) -> Bench:
    endpoint = Endpoint(server.url, "mock", "RECAST_TEST_NO_KEY")
    return Bench((load_card("pairwise-v1"),), endpoint, world.sets)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World.make(tmp_path_factory.mktemp("money"), prompts=10)


@pytest.mark.parametrize(
    ("script", "cap"),
    [
        (Script(), 0.0),
        (Script(), 0.02),
        (Script(tokens=(30_000, 700)), 0.05),  # pictures that take far more than was thought
        (Script(tokens=(1_700, 2_800), truncate=1.0), 0.03),  # each question is asked twice
        (Script(tokens=(1_700, 2_800), malformed=1.0), 0.03),
        (Script(usage=False), 0.03),
    ],
)
def test_no_more_is_spent_than_the_cap(world: World, script: Script, cap: float) -> None:
    name = f"{script.tokens}{script.truncate}{script.malformed}{script.usage}{cap}"
    with JudgeServer(script) as server:
        world.run(server, max_cost=cap, out=name)
        assert spent(server) <= cap
        assert (server.calls > 0) == (cap > 0)
    assert world.states(name)["budget"] > 0


def test_a_cap_that_is_enough_loses_nothing(world: World) -> None:
    """20 calls of .00105 under .03: what calls in flight hold comes free, so the others wait."""
    with JudgeServer(Script(delay_s=0.01)) as server:
        world.run(server, max_cost=0.03, out="fits")
        assert server.calls == 20
    assert world.states("fits") == {"win": 10}


def test_a_killed_run_on_a_silent_server_has_spent_something(world: World) -> None:
    """Replies that told no cost, of a run that never ended: they count as what was set aside."""
    with JudgeServer(Script(usage=False)) as server:
        world.run(server, out="killed")
        assert server.calls == 20
        db = sqlite3.connect(world.root / "killed" / STORE)
        with db:
            db.execute("UPDATE runs SET finished=NULL, pid=0x3fffffff")
            db.execute("UPDATE calls SET reply='nothing', state='transport'")
        db.close()
        done = world.run(server, out="killed", max_cost=0.05)
        assert server.calls == 20
    assert done.reports["pairwise-v1@mock"].spent > 0.05


def test_a_cap_without_a_price_or_a_number_is_refused(world: World) -> None:
    with JudgeServer() as server:
        for options in (Options(max_cost=1.0), Options(max_cost=float("nan"), price=RATE)):
            with pytest.raises(ConfigError, match="cost"):
                judge(bench_of(world, server), world.root / "refused", options)
        assert server.calls == 0


@pytest.mark.parametrize("cap", [0.0, 0.05])
def test_a_batch_fits_under_the_cap_as_a_whole_or_is_not_sent(world: World, cap: float) -> None:
    out = world.root / f"batch-{cap}"
    capped = Options(max_cost=cap, price=RATE)
    with JudgeServer() as server:
        bench = bench_of(world, server)
        (row,) = estimate(bench, out, RATE)
        assert cap < row.once < row.most
        with pytest.raises(ConfigError, match="cap"):
            batch("write", bench, out, capped)
        assert not list(out.rglob("*.jsonl"))
        batch("write", bench, out, Options(max_cost=row.once, price=RATE))
        with pytest.raises(ConfigError, match="cap"):
            batch("submit", bench, out, capped)
        assert server.calls == 0
        batch("submit", bench, out, Options(max_cost=row.once * 1.05, price=RATE))
        assert server.calls == 20


def test_null_tests_share_one_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    for seed, model in enumerate(("a", "b")):
        make_folder(tmp_path / "images" / model, prompts=8, seed=seed)
    app = build_app(recast_eval.commands, "")

    def status(*words: str) -> int:
        result = CliRunner().invoke(app, list(words))
        return 2 if isinstance(result.exception, ConfigError) else result.exit_code

    with JudgeServer() as server:
        where = ("--base-url", server.url, "--model", "mock")
        assert status("judge", "--pairwise", "a", "b", "--out", str(tmp_path), *where) == 0
        before = server.calls
        ask = ("audit", str(tmp_path), "--ask", "--nulls", "8")
        assert status(*ask, "--max-cost", "1") == 2  # no price
        assert status(*ask, "--max-cost", "0", "--price", "1,1") == 1
        assert server.calls == before
        assert status(*ask, "--max-cost", "0.02", "--price", "1,1") == 1
        assert 0 < (server.calls - before) * 1050 / 1e6 <= 0.02
        assert status(*ask, "--max-cost", "1", "--price", "1,1") == 0
        assert server.calls == before + 8 + 16


def test_a_reply_that_was_no_verdict_is_not_given_again(world: World) -> None:
    """By a server that honours idempotency keys."""
    with JudgeServer(Script(honours_keys=True, malformed=1.0)) as server:
        world.run(server, out="keys")
        assert world.states("keys") == {"no_verdict": 10}
        server.script.malformed = 0.0
        world.run(server, out="keys")
        assert server.calls == 40
    assert world.states("keys") == {"win": 10}


def test_a_request_that_stepped_down_has_another_key(world: World) -> None:
    with JudgeServer(Script(reject={"temperature": ""})) as server:
        world.run(server, out="steps")
        assert server.calls == 20
        assert len(set(server.keys)) == len(server.keys) == 21


def test_what_is_in_a_submitted_batch_is_not_written_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    out = world.root / "twice"
    with JudgeServer() as server:
        bench = bench_of(world, server)
        batch("write", bench, out, Options())
        batch("submit", bench, out, Options())
        said, _ = batch("write", bench, out, Options(max_cost=0.0, price=RATE))
        assert said == ["pairwise-v1@mock: 0 requests in 0 files, 20 wait in submitted batches"]
        with pytest.raises(DataError, match="no request files"):
            batch("submit", bench, out, Options())
        assert server.calls == 20
        judge(bench, out, Options())
        assert "run --batch collect first" in caplog.text
        batch("collect", bench, out, Options())
