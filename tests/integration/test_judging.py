"""Judging against a real server on the loopback that misbehaves in every way on record."""

import asyncio
import base64
import json
import logging
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.image_folders import make_folder
from support.judge_server import JudgeServer, Question, Script, always, honest
from support.judging import World

from recast_eval.errors import ConfigError
from recast_eval.judging.cards import amended, load_card
from recast_eval.judging.pairs import check_prompts, read_image_set
from recast_eval.judging.replaying import replay
from recast_eval.judging.store_file import StoreFile


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.make(tmp_path, prompts=10)


def test_an_honest_judge_is_consistent_and_everything_is_kept(world: World) -> None:
    with JudgeServer() as server:
        done = world.run(server)
    assert done.tally.by_judge == {"pairwise-v1@mock": (10, 10)}
    assert world.states() == {"win": 10}
    assert server.calls == 20
    for record in world.records():
        assert [o.first for o in record.orders] == ["A", "B"]
        assert [o.second for o in record.orders] == ["B", "A"]
        winner = record.axes["overall"].winner
        assert {o.verdict["overall"].winner for o in record.orders} == {winner}
        assert record.usage.input_tokens == 2000
        assert record.usage.image_tokens is None
        assert record.category == ("numbers" if int(record.prompt_id[1:]) % 2 else None)
    assert done.ledger.sums["reasoning_tokens"] == 200
    assert done.ledger.untold["cost_usd"] == 20


@pytest.mark.parametrize("token", ["A", "B"])
def test_a_judge_that_always_names_one_slot_only_flips(world: World, token: str) -> None:
    with JudgeServer(Script(verdict=always(token))) as server:
        world.run(server)
    assert world.states() == {"flip": 10}
    scores = [r.axes["overall"].score_a for r in world.records()]
    assert sum(s for s in scores if s is not None) / 10 == 0.5
    firsts = [o.verdict["overall"].winner == o.first for r in world.records() for o in r.orders]
    assert all(firsts) if token == "A" else not any(firsts)  # noqa: S105 - a slot


def test_ties_are_ties_and_refused_where_a_choice_is_forced(world: World) -> None:
    with JudgeServer(Script(verdict=always("tie"))) as server:
        world.run(server, "pairwise-strict-v1", out="strict")
        world.run(server, "pairwise-v1", out="forced")
    assert world.states("strict") == {"tie": 10}
    assert world.states("forced") == {"out_of_range": 10}


def test_a_tie_in_one_order_is_a_tie_and_marked(world: World) -> None:
    def half(question: Question) -> dict[str, str]:
        first = question.images[0] > question.images[1]
        return dict.fromkeys(("overall", "faithfulness", "aesthetics"), "A" if first else "tie")

    with JudgeServer(Script(verdict=half)) as server:
        world.run(server, "pairwise-strict-v1")
    assert world.states() == {"tie": 10}
    assert all(r.axes["overall"].one_tie for r in world.records())


def test_grades_decide_a_pair_and_equal_grades_tie(world: World) -> None:
    with JudgeServer() as server:
        world.run(server, "pointwise-v1")
    states = world.states()
    assert set(states) <= {"win", "tie"}
    for record in world.records():
        grades, outcome = record.grades, record.axes["overall"]
        difference = grades["A"]["overall"] - grades["B"]["overall"]
        assert outcome.winner == ("A" if difference > 0 else "B" if difference < 0 else None)
        assert record.order_free


def test_three_models_add_up_and_odd_names_do_no_harm(tmp_path: Path) -> None:
    world = World.make(tmp_path, prompts=2, models=("A", "tie", "B"))
    with JudgeServer() as server:
        world.run(server)
    records = world.records()
    assert len(records) == 6  # 3 pairs of models, 2 prompts
    assert sum(r.axes["overall"].state == "win" for r in records) == 6
    assert {r.axes["overall"].winner for r in records} <= {"A", "tie", "B"}


TROUBLES = {
    "busy": Script(busy=0.5),
    "drop": Script(drop=0.5),
    "html": Script(html=0.5),
    "no choices": Script(no_choices=0.5),
    "truncated once": Script(truncate=0.5),
    "no usage": Script(usage=False),
    "no model list": Script(models=None),
    "no json_schema": Script(reject={"response_format": "json_schema"}),
    "no response_format": Script(reject={"response_format": "json"}),
    "no temperature": Script(reject={"temperature": "only the default"}),
    "no max_tokens": Script(reject={"max_tokens": "use max_completion_tokens"}),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_trouble_that_passes_leaves_no_trace_in_the_table(world: World, name: str) -> None:
    with JudgeServer() as calm:
        world.run(calm, out="calm")
    with JudgeServer(TROUBLES[name]) as server:
        world.run(server, out="rough")
    assert world.table("rough") == world.table("calm")
    assert max(server.paid.values()) == (2 if name == "truncated once" else 1)


def test_a_step_down_costs_one_question_and_is_on_record(world: World) -> None:
    with JudgeServer(Script(reject={"response_format": "json_schema"})) as server:
        world.run(server)
    assert server.statuses[400] == 1  # the first question alone found out
    modes = {o.mode["response_format"] for r in world.records() for o in r.orders}
    assert modes == {"json_object"}


def test_one_image_servers_get_a_hint_or_one_picture(world: World) -> None:
    with JudgeServer(Script(one_image=True)) as server:
        done = world.run(server, "pairwise-v1", out="plain")
        assert server.statuses[400] <= 2
        report = done.reports["pairwise-v1@mock"]
        assert "side_by_side" in report.stopped
        assert "limit-mm-per-prompt" in report.stopped
        assert world.states("plain") == {"transport": 10}
        world.run(server, "pairwise-strict-v1", out="both")
    assert world.states("both").keys() <= {"win", "flip"}
    modes = {o.mode["layout"] for r in world.records("both") for o in r.orders}
    assert modes == {"side_by_side"}


def test_one_picture_of_two_keeps_the_limit_of_bytes(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for model in ("A", "B"):
        folder = make_folder(tmp_path / model, prompts=1)
        tall = random.integers(0, 256, (128, 64, 3), dtype=np.uint8)
        Image.fromarray(tall).save(folder / "0-0.png")
    sets = tuple(read_image_set(tmp_path / name, name) for name in ("A", "B"))
    rule = load_card("pairwise-strict-v1").images.model_copy(
        update={"max_side": 128, "min_side": 0, "max_bytes": 30_000}
    )
    card = amended(load_card("pairwise-strict-v1"), images=rule.model_dump())
    with JudgeServer(Script(one_image=True)) as server:
        server.keep_bodies = True
        World(tmp_path, sets).run(server, card)
        parts = server.bodies[-1]["messages"][0]["content"]
    (url,) = [p["image_url"]["url"] for p in parts if p["type"] == "image_url"]
    assert len(base64.b64decode(url.partition(",")[2])) <= 30_000


def test_what_a_reply_can_be_is_told_apart(world: World) -> None:
    script = Script(malformed=0.3, refuse=0.3, filtered=0.3)
    with JudgeServer(script) as server:
        done = world.run(server)
    states = world.states()
    assert {"no_verdict", "refused", "content_filter"} <= set(states)
    assert sum(states.values()) == 10
    assert done.tally.scored == states["win"]
    for record in world.records():
        for order in record.orders:
            assert (order.reason is None) == bool(order.verdict)


def test_a_reply_that_stays_cut_short_is_truncated_after_one_raise(world: World) -> None:
    script = Script(replay=lambda q: '{"overall": "A", "faith')
    with JudgeServer(script) as server:
        server.keep_bodies = True
        world.run(server)
        assert world.states() == {"truncated": 10}
        assert {b["max_tokens"] for b in server.bodies} == {700, 2800}
        assert server.calls == 40


def test_failures_are_not_cached_and_verdicts_are(world: World) -> None:
    with JudgeServer(Script(malformed=0.4)) as server:
        world.run(server)
        bad = sum(bool(o.reason) for r in world.records() for o in r.orders)
        assert bad
        before = server.calls
        world.run(server)
        assert server.calls == before + bad
        server.script.malformed = 0
        world.run(server)
        assert server.calls == before + 2 * bad
        world.run(server)
        assert server.calls == before + 2 * bad
    assert world.states() == {"win": 10}


def test_a_dead_server_scores_nothing_caches_nothing_and_can_be_tried_again(world: World) -> None:
    with JudgeServer(Script(down=True)) as server:
        done = world.run(server)
        assert done.tally.by_judge["pairwise-v1@mock"] == (0, 10)
        assert world.states() == {"transport": 10}
        assert done.ledger.replies == 0
        server.script.down = False
        done = world.run(server)
    assert done.tally.by_judge["pairwise-v1@mock"] == (10, 10)
    assert server.calls == 20


def test_a_server_that_dies_midway_is_given_up_soon(tmp_path: Path) -> None:
    world = World.make(tmp_path, prompts=60)
    with JudgeServer() as server:

        def dying(question: Question) -> dict[str, str]:
            if server.calls >= 30:
                server.script.down = True
            return honest(question)

        server.script.verdict = dying
        done = world.run(server, attempts=2, concurrency=4)
        assert done.reports["pairwise-v1@mock"].stopped
        assert done.tally.scored < 20
        assert done.ledger.calls < 120
        server.script.down, server.script.verdict = False, honest
        world.run(server)
    assert world.states() == {"win": 60}
    assert max(server.paid.values()) == 1


def test_only_what_depends_on_a_change_is_asked_again(world: World) -> None:
    card = load_card("pairwise-v1")
    with JudgeServer() as server, JudgeServer() as elsewhere:
        world.run(server)
        assert server.calls == 20
        world.run(server)
        assert server.calls == 20
        world.run(server, amended(card, decoding={"temperature": 0.5}))
        assert server.calls == 40
        world.run(server, amended(card, template_text=card.template_text + "Think first."))
        assert server.calls == 60
        world.run(elsewhere)
        assert elsewhere.calls == 20
        world.run(server)
        assert server.calls == 60  # the first setting is in the store still
        Image.new("RGB", (16, 16), "red").save(world.sets[0].folder / "3-0.png")
        world.again().run(server)
        assert server.calls == 62
    assert len(world.records()) == 10  # the latest setting of the judge, and nothing twice


def test_the_cap_is_hard_and_the_rest_is_counted(world: World) -> None:
    with JudgeServer() as server:
        done = world.run(server, max_cost=0.02, concurrency=8)
        assert 0 < server.calls < 20
        assert server.calls * 1050 / 1e6 <= 0.02
        assert world.states()["budget"] > 0
        assert done.ledger.sums["cost_usd"] == pytest.approx(server.calls * 1050 / 1e6)
        world.run(server)
    assert world.states() == {"win": 10}


def test_pictures_are_checked_before_the_first_paid_call(world: World) -> None:
    folder = world.sets[1].folder
    whole = (folder / "2-0.png").read_bytes()
    (folder / "2-0.png").write_bytes(whole[: len(whole) * 6 // 10])
    (folder / "4-0.png").write_bytes(b"<html>not found</html>")
    (folder / "5-0.png").unlink()
    with JudgeServer() as server:
        done = world.again().run(server)
    assert world.states() == {"win": 7, "image_error": 2, "missing_image": 1}
    assert len(done.reports["pairwise-v1@mock"].plan.problems) == 3
    assert server.calls == 14


def test_pairs_are_matched_by_id_whatever_the_order_of_the_lines(world: World) -> None:
    with JudgeServer() as server:
        world.run(server)
        before = world.table()
        table = world.sets[1].folder / "metadata.jsonl"
        lines = table.read_text("utf-8").splitlines(keepends=True)
        table.write_text("".join(reversed(lines)), "utf-8")
        world.again().run(server)
        assert server.calls == 20
    assert world.table() == before


def test_the_same_id_with_another_text_is_refused(tmp_path: Path) -> None:
    one = read_image_set(make_folder(tmp_path / "a", prompts=2), "a")
    two = read_image_set(make_folder(tmp_path / "b", prompts=2), "b")
    record = two.records["p1", 0]
    two.records["p1", 0] = record.model_copy(update={"prompt": "something else"})
    with pytest.raises(ConfigError) as caught:
        check_prompts([one, two, one])
    assert "p1" in str(caught.value)
    assert "given twice" in str(caught.value)


def test_many_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    for turn in range(30):
        path, together = tmp_path / f"{turn}.sqlite", threading.Barrier(8)

        def opened(path: Path = path, together: threading.Barrier = together) -> None:
            together.wait()
            StoreFile(path).close()

        with ThreadPoolExecutor(8) as pool:
            for one in [pool.submit(opened) for _ in range(8)]:
                one.result()


def test_two_processes_share_a_store_and_pay_once(world: World) -> None:
    """Two runs at once on one file, as two processes would: each question is asked by one."""
    other = World(world.root, world.sets)
    with JudgeServer(Script(delay_s=0.02)) as server:

        async def both() -> None:
            await asyncio.gather(
                asyncio.to_thread(world.run, server), asyncio.to_thread(other.run, server)
            )

        asyncio.run(both())
        assert server.calls == 20
        assert max(server.delivered.values()) == 1
    assert world.states() == {"win": 10}


def test_judging_works_inside_a_running_loop(world: World) -> None:
    with JudgeServer() as server:

        async def cell() -> None:
            world.run(server)

        asyncio.run(cell())
    assert world.states() == {"win": 10}


def test_the_key_is_sent_and_never_written(world: World, caplog: pytest.LogCaptureFixture) -> None:
    key = "sk-test-0123456789abcdef"
    os.environ["RECAST_TEST_KEY"] = key
    try:
        with JudgeServer(Script(key=key)) as server:
            world.run(server, key_env="RECAST_TEST_KEY")
        with (
            JudgeServer(Script(key="another")) as server,
            caplog.at_level(logging.DEBUG),
            pytest.raises(ConfigError) as caught,
        ):
            world.run(server, key_env="RECAST_TEST_KEY", out="denied")
    finally:
        del os.environ["RECAST_TEST_KEY"]
    assert key not in str(caught.value)
    assert not any(key in r.getMessage() for r in caplog.records if r.name.startswith("recast"))
    for path in world.root.rglob("*"):
        if path.is_file():
            assert key.encode() not in path.read_bytes(), path


def test_a_wrong_model_or_url_is_found_before_anything_is_asked(world: World) -> None:
    with JudgeServer(Script(models=["other"])) as server:
        with pytest.raises(ConfigError, match="other"):
            world.run(server)
        assert server.calls == 0
    with JudgeServer() as server:
        server.script.prefix = ""
        url = server.url
        server.script.prefix = "/v1"
        server_without = type("S", (), {"url": url})()
        with pytest.raises(ConfigError, match=f"{url}/v1"):
            world.run(server_without)


def test_a_server_may_list_its_models_under_a_prefix(world: World) -> None:
    with JudgeServer(Script(models=["models/other", "models/mock"])) as server:
        assert world.run(server).tally.scored == 10
    with (
        JudgeServer(Script(models=["models/mocking", "mock/other"])) as server,
        pytest.raises(ConfigError, match="no model"),
    ):
        world.run(server, out="other")


def test_a_slow_drip_ends_at_the_deadline(world: World) -> None:
    card = amended(load_card("pairwise-v1"), timeout_s=0.3)
    few = World(world.root, world.sets)
    with JudgeServer(Script(trickle_s=0.02)) as server:
        done = few.run(server, card, attempts=1)
    assert world.states() == {"transport": 10}
    assert "0.3 s" in world.records()[0].orders[0].detail
    assert done.ledger.replies == 0


def test_replay_reads_the_stored_replies_again(world: World) -> None:
    with JudgeServer() as server:
        world.run(server)
    out = world.root / "out"
    before = (out / "verdicts.jsonl").read_bytes()
    (out / "verdicts.jsonl").unlink()
    again = replay(out)
    assert (out / "verdicts.jsonl").read_bytes() == before
    assert len(again.changes) == 10
    assert replay(out).changes == ()
    with sqlite3.connect(out / "replies.sqlite") as db:  # a reply that today reads otherwise
        key = world.records()[0].orders[0].reply
        db.execute("UPDATE calls SET reply='Both are fine' WHERE key=?", (key,))
    db.close()
    changed = replay(out)
    assert len(changed.changes) == 3
    assert changed.changes[0].endswith("-> no_verdict")
    assert changed.tally.scored == 9


def test_a_jury_of_models_votes_with_its_members(tmp_path: Path) -> None:
    world = World.make(tmp_path, prompts=6)
    members = [{"judge": name} for name in ("pairwise-v1", "pairwise-strict-v1", "pointwise-v1")]
    (tmp_path / "jury").mkdir()
    card = {
        "name": "three-v1",
        "kind": "jury",
        "what": "three cards on one model",
        "axes": {"overall": "which is better"},
        "jury": members,
        "quorum": 1,
    }
    (tmp_path / "jury" / "judge.yaml").write_text(json.dumps(card), "utf-8")
    with JudgeServer() as server:
        done = world.run(server, load_card(str(tmp_path / "jury")))
    assert done.tally.by_judge["three-v1"] == (6, 6)
    jury = [r for r in world.records() if r.judge == "three-v1"]
    assert all(len(r.votes) == 3 for r in jury)
    assert {v.judge for r in jury for v in r.votes} == {
        "pairwise-v1@mock",
        "pairwise-strict-v1@mock",
        "pointwise-v1@mock",
    }


def test_a_judge_that_reads_text_only_gets_plain_text(world: World) -> None:
    card = amended(
        load_card("pairwise-v1"),
        images={"layout": "none"},
        template_text="<prompt-{{ nonce }}>{{ prompt }}</prompt-{{ nonce }}>\n"
        "A: {{ facts_a }}\nB: {{ facts_b }}\n- overall: which?\n",
        axes={"overall": "which"},
    )
    with JudgeServer(Script(verdict=always("A"))) as server:
        server.keep_bodies = True
        world.run(server, card, facts=lambda pair, side: f"drawn by {side.sha256 or side.path}")
        assert all(isinstance(b["messages"][0]["content"], str) for b in server.bodies)
        assert "drawn by" in server.bodies[0]["messages"][0]["content"]
    assert world.states() == {"flip": 10}


def test_five_lines_of_pandas_give_the_numbers(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The snippet of docs/judging.md, run as it stands there."""
    page = (Path(__file__).parents[2] / "docs" / "judging.md").read_text("utf-8")
    snippet = page.split("```python\nimport pandas")[1].split("```")[0]
    with JudgeServer(Script(refuse=0.2)) as server:
        world.run(server, out="evals/demo")
    monkeypatch.chdir(world.root)
    exec("import pandas" + snippet, {})  # noqa: S102 - our own page
    shown = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()[2:]}
    records = [r.axes["overall"] for r in world.records("evals/demo")]
    scored = [o.score_a for o in records if o.score_a is not None]
    assert len(scored) < 10
    for model, wins in (("A", sum(scored)), ("B", len(scored) - sum(scored))):
        assert float(shown[model][0]) == pytest.approx(wins / len(scored), abs=1e-5)
        assert shown[model][1:] == [str(len(scored)), "10"]
