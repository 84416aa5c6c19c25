"""Juries of models keep their members, and those that cannot decide are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.judge_server import JudgeServer, Script
from support.judging import World

from recast_eval.errors import ConfigError
from recast_eval.judging.cards import JudgeCard, amended, load_card
from recast_eval.judging.executor import Options
from recast_eval.judging.workflow import Bench, Endpoint, check_bench, choose_cards, judge

TWO = ({"judge": "pairwise-v1", "model": "m1"}, {"judge": "pairwise-v1", "model": "m2"})


def jury_of(*members: dict[str, Any], quorum: int = 2, **more: str) -> JudgeCard:
    return JudgeCard(
        name="j-v1", kind="jury", what="", axes={"overall": "q"} | more, jury=members, quorum=quorum
    )


def of_the_jury(world: World) -> list[str]:
    return [r.model_dump_json() for r in world.records() if r.judge == "j-v1"]


def test_a_jury_keeps_its_votes_whatever_its_members_are_asked_later(tmp_path: Path) -> None:
    world = World.make(tmp_path, prompts=3)
    out = tmp_path / "out"
    with JudgeServer(Script(models=None)) as server, JudgeServer(Script(models=None)) as other:
        judge(Bench((jury_of(*TWO),), Endpoint(server.url, "m1"), world.sets), out, Options())
        before = of_the_jury(world)
        assert [json.loads(line)["axes"]["overall"]["state"] for line in before] == ["win"] * 3
        card = load_card("pairwise-v1")
        judge(Bench((card,), Endpoint(other.url, "m2"), world.sets), out, Options())
        assert of_the_jury(world) == before
        judge(
            Bench((amended(card, repeats=2),), Endpoint(server.url, "m1"), world.sets),
            out,
            Options(),
        )
        assert of_the_jury(world) == before


@pytest.mark.parametrize("jury_first", [True, False])
def test_a_judge_beside_its_jury_keeps_its_own_repeats(tmp_path: Path, jury_first: bool) -> None:
    world = World.make(tmp_path, prompts=2)
    folder = tmp_path / "jury"
    folder.mkdir()
    (folder / "judge.yaml").write_text(jury_of(*TWO).model_dump_json(), "utf-8")
    names = [str(folder), "pairwise-v1"]
    cards = choose_cards(names if jury_first else names[::-1], has_endpoint=True, repeats=3)
    with JudgeServer(Script(models=None)) as server:
        done = judge(
            Bench(tuple(cards), Endpoint(server.url, "m1"), world.sets),
            tmp_path / "out",
            Options(),
        )
    assert done.tally.by_judge["j-v1"] == (2, 2)
    assert done.tally.by_judge["pairwise-v1@m1"] == (6, 6)


@pytest.mark.parametrize(
    ("jury", "said"),
    [
        (jury_of(*TWO, quorum=3), "quorum 3 on 'overall', but members of only 2 families"),
        (
            jury_of(*TWO, humour="which is funnier"),
            "quorum 2 on 'humour', but members of only 0 families",
        ),
        (jury_of({"judge": "jury-offline-v1"}, quorum=1), "jury-offline-v1 are juries"),
    ],
)
def test_a_jury_that_cannot_decide_is_refused_before_it_costs(
    tmp_path: Path, jury: JudgeCard, said: str
) -> None:
    world = World.make(tmp_path, prompts=1)
    with JudgeServer(Script(models=None)) as server:
        bench = Bench((jury,), Endpoint(server.url, "m1"), world.sets)
        with pytest.raises(ConfigError, match=said):
            check_bench(bench, None, None)
        with pytest.raises(ConfigError, match=said):
            judge(bench, tmp_path / "out", Options())
        assert server.calls == 0
