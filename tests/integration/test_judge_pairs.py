"""A pair is one observation: whichever way round it was given, as long as it is in the tables."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from support.judge_server import JudgeServer, Script
from support.judging import World

from recast_eval.judging.cards import JudgeCard, load_card
from recast_eval.judging.executor import Options
from recast_eval.judging.offline import Scores, heldout_scores, offline_records
from recast_eval.judging.pairs import make_pairs
from recast_eval.judging.replaying import replay
from recast_eval.judging.workflow import Bench, Endpoint, Judged, judge
from recast_eval.records import Scored, ScoreRecord, file_sha256


def fewer(world: World, prompts: int) -> World:
    """The same folders, whose tables have lost their last prompts."""
    found = world.again()
    for images in found.sets:
        for key in sorted(images.records)[prompts:]:
            del images.records[key]
    return found


def turned_round(world: World) -> World:
    return World(world.root, world.sets[::-1])


def test_the_other_way_round_is_the_same_pair(tmp_path: Path) -> None:
    world = World.make(tmp_path, prompts=6, models=("B", "A"))
    with JudgeServer() as server:
        first = world.run(server)
        table = (tmp_path / "out" / "verdicts.jsonl").read_bytes()
        second = turned_round(world).run(server)
        assert server.calls == 12
    assert first.tally.by_judge == second.tally.by_judge == {"pairwise-v1@mock": (6, 6)}
    assert (tmp_path / "out" / "verdicts.jsonl").read_bytes() == table
    assert {(r.model_a, r.model_b) for r in world.records()} == {("A", "B")}


def test_prompts_that_left_the_tables_leave_the_verdicts_and_come_back_at_no_cost(
    tmp_path: Path,
) -> None:
    world = World.make(tmp_path, prompts=6, models=("A", "B", "C"))
    with JudgeServer() as server:
        assert world.run(server).tally.total == 18
        two = World(tmp_path, fewer(world, 3).sets[:2])
        done = two.run(server)
        assert done.tally.by_judge == {"pairwise-v1@mock": (3 + 12, 3 + 12)}
        assert world.run(server).tally.total == 18
        assert server.calls == 36


def scores_of(world: World) -> Scores:
    """The later model wins everywhere."""
    records = [
        ScoreRecord(
            model=images.model,
            prompt_id=key[0],
            sample=key[1],
            image=file_sha256(images.folder / record.file_name),
            scorer="finish",
            scorer_digest="0",
            role="heldout",
            outcome=Scored(value=float(i)),
        )
        for i, images in enumerate(world.sets)
        for key, record in images.records.items()
    ]
    return heldout_scores(records)


def test_a_score_of_another_file_is_no_vote(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World.make(tmp_path, prompts=3)
    scores = scores_of(world)
    card = load_card("jury-offline-v1")
    (world.sets[0].folder / "0-0.png").write_bytes((world.sets[1].folder / "0-0.png").read_bytes())
    changed, *others = offline_records(card, make_pairs(world.sets), scores)
    assert changed.axes["overall"].reason == "no_quorum"
    assert [v.detail for v in changed.votes] == ["other_image"]
    assert changed.grades == {"B": {"finish": 1.0}}
    assert [r.axes["overall"].winner for r in others] == ["B", "B"]
    assert "1 pairs are not the ones" in caplog.text


def test_the_offline_jury_forgets_them_too(tmp_path: Path) -> None:
    world = World.make(tmp_path, prompts=6)
    scores = scores_of(world)

    def run(some: World) -> Judged:
        bench = Bench((load_card("jury-offline-v1"),), None, some.sets)
        return judge(bench, tmp_path / "out", Options(), scores=scores)

    assert run(world).tally.by_judge == {"jury-offline-v1": (6, 6)}
    assert run(turned_round(world)).tally.total == 6
    assert run(fewer(world, 3)).tally.total == 3


def turn_rows(store: Path, judge_name: str, *, keep: bool) -> None:
    """Write a judge's questions as an older version did for ``judge B A``."""
    with sqlite3.connect(store) as db:
        rows: list[Any] = db.execute(
            "SELECT asks.* FROM asks JOIN specs ON specs.spec = asks.spec WHERE judge=?",
            (judge_name,),
        ).fetchall()
        assert rows
        if not keep:
            db.execute("DELETE FROM asks WHERE spec=?", (rows[0][0],))
        for spec, prompt, sample, a, b, repeat, ordinal, key, nonce, first, second, text in rows:
            info = json.loads(text)
            info["image_a"], info["image_b"] = info["image_b"], info["image_a"]
            row = (spec, prompt, sample, b, a, repeat, 1 - ordinal, key, nonce, first, second)
            db.execute(
                "INSERT INTO asks VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", (*row, json.dumps(info))
            )
    db.close()


@pytest.mark.parametrize("keep", [True, False], ids=["doubled", "turned"])
@pytest.mark.parametrize("card", ["pairwise-v1", "pointwise-v1"])
def test_a_store_with_pairs_the_other_way_round_reads_the_same(
    tmp_path: Path, card: str, keep: bool
) -> None:
    world = World.make(tmp_path, prompts=3)
    members = ({"judge": card, "model": "m1"}, {"judge": card, "model": "m2"})
    jury = JudgeCard(
        name="j-v1", kind="jury", what="", axes={"overall": "q"}, jury=members, quorum=2
    )
    out = tmp_path / "out"
    with JudgeServer(Script(models=None)) as server:
        bench = Bench((jury,), Endpoint(server.url, "m1"), world.sets)
        assert judge(bench, out, Options()).tally.by_judge["j-v1"] == (3, 3)
        before = (out / "verdicts.jsonl").read_bytes()
        turn_rows(out / "replies.sqlite", f"{card}@m2", keep=keep)
        assert replay(out).changes == ()
        assert (out / "verdicts.jsonl").read_bytes() == before
        judge(bench, out, Options())
        assert (out / "verdicts.jsonl").read_bytes() == before
        assert server.calls == 12
    with sqlite3.connect(out / "replies.sqlite") as db:
        assert db.execute("SELECT COUNT(*) FROM asks WHERE model_a > model_b").fetchone() == (0,)
    db.close()
