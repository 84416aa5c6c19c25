"""The page is blind and harmless; what comes back is believed only as far as its key."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import recast_eval.commands
from recast_eval.console import build_app
from recast_eval.errors import ConfigError, DataError
from recast_eval.judging.audit import read_votes
from recast_eval.judging.review import import_votes, write_page
from recast_eval.judging.review_records import ReviewKey
from recast_eval.records import read_json
from tests.support.image_folders import make_folder

HOSTILE = "</script><script>alert(1)</script> & \u202e猫 \u2028"


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    for seed, model in enumerate(("secret-model-a", "secret-model-b")):
        make_folder(tmp_path / "images" / model, prompts=12, samples=2, seed=seed)
        table = tmp_path / "images" / model / "metadata.jsonl"
        lines = [json.loads(line) for line in table.read_text("utf-8").split("\n")[:-1]]
        lines[0]["prompt"] = lines[1]["prompt"] = HOSTILE
        table.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return tmp_path


def data_of(page: Path) -> Any:
    text = page.read_text("utf-8")
    block = re.search(r'<script type="application/json" id="pairs">(.*?)</script>', text, re.DOTALL)
    assert block is not None
    return json.loads(block[1], parse_constant=lambda name: pytest.fail(name))


def ballot(path: Path, page: str, voter: str, choices: dict[str, str]) -> Path:
    votes = [{"pair": pair, "choice": choice, "seconds": 1.5} for pair, choice in choices.items()]
    value = {"schema_version": 1, "page": page, "voter": voter, "votes": votes}
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_a_page_names_no_model_no_file_and_runs_no_prompt(evaluation: Path) -> None:
    page = write_page(evaluation, count=24)
    text = page.path.read_text("utf-8")
    assert "secret-model" not in text
    assert ".png" not in text
    assert str(evaluation) not in text
    assert text.count("<script") == 2
    assert "<script>alert" not in text
    shown = data_of(page.path)["pairs"]
    assert len(shown) == page.pairs == 24
    assert HOSTILE in {pair["prompt"] for pair in shown}
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", text)


def test_every_prompt_comes_once_before_any_comes_twice(evaluation: Path) -> None:
    key = read_json(write_page(evaluation, count=12).key, ReviewKey)
    assert len({pair.prompt_id for pair in key.pairs.values()}) == 12
    sides = {
        pair.left
        for pair in read_json(write_page(evaluation, count=24).key, ReviewKey).pairs.values()
    }
    assert sides == {"secret-model-a", "secret-model-b"}


def test_the_same_seed_gives_the_same_page(evaluation: Path) -> None:
    assert write_page(evaluation, seed=3).path == write_page(evaluation, seed=3).path
    assert write_page(evaluation, seed=3).path != write_page(evaluation, seed=4).path


def test_what_does_not_fit_is_counted(evaluation: Path) -> None:
    page = write_page(evaluation, count=24, budget=10_000)
    assert 0 < page.pairs < 24
    assert page.pairs + page.left_out == 24


def test_votes_come_home_as_models(evaluation: Path, tmp_path: Path) -> None:
    page = write_page(evaluation, count=4)
    key = read_json(page.key, ReviewKey)
    choices = {"0001": "left", "0002": "right", "0003": "tie"}
    came = import_votes(evaluation, [ballot(tmp_path / "v.json", key.page, "ann", choices)])
    assert (came.new, came.changed, came.total) == (3, 0, 3)
    votes = {(v.prompt_id, v.sample): v for v in read_votes(evaluation / "votes.jsonl")}
    for name, winner in (("0001", key.pairs["0001"].left), ("0002", key.pairs["0002"].right)):
        shown = key.pairs[name]
        assert votes[shown.prompt_id, shown.sample].winner == winner
        assert votes[shown.prompt_id, shown.sample].first == shown.left
    tied = key.pairs["0003"]
    assert votes[tied.prompt_id, tied.sample].winner is None


def test_importing_twice_adds_nothing_and_a_new_mind_replaces(
    evaluation: Path, tmp_path: Path
) -> None:
    page = read_json(write_page(evaluation, count=4).key, ReviewKey).page
    one = ballot(tmp_path / "v.json", page, "ann", {"0001": "left"})
    other = ballot(tmp_path / "w.json", page, "bob", {"0001": "left"})
    assert import_votes(evaluation, [one, other, one]).total == 2
    assert import_votes(evaluation, [one]).changed == 0
    again = ballot(tmp_path / "v.json", page, "ann", {"0001": "right"})
    came = import_votes(evaluation, [again])
    assert (came.new, came.changed, came.total) == (0, 1, 2)


def bad_ballots() -> Iterator[tuple[Any, str]]:
    good = {"schema_version": 1, "page": "PAGE", "voter": "x", "votes": []}
    yield good | {"page": "../../etc"}, "not written here"
    yield good | {"votes": [{"pair": "9999", "choice": "left"}]}, "no pair '9999'"
    yield good | {"votes": [{"pair": "0001", "choice": "A"}]}, "choice"
    yield good | {"voter": ""}, "voter"
    yield good | {"more": 1}, "more"
    yield [], "Ballot|object|dictionary"


@pytest.mark.parametrize(("value", "says"), list(bad_ballots()))
def test_a_ballot_is_checked(evaluation: Path, tmp_path: Path, value: Any, says: str) -> None:
    page = read_json(write_page(evaluation, count=4).key, ReviewKey).page
    text = json.dumps(value).replace('"PAGE"', json.dumps(page))
    path = tmp_path / "v.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=says):
        import_votes(evaluation, [path])
    assert not (evaluation / "votes.jsonl").exists()


def test_wrong_requests_are_told_all_at_once(evaluation: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        write_page(evaluation, models=["nobody"], axis="taste")
    assert len(caught.value.problems) == 3


def test_the_command_writes_then_imports(evaluation: Path, tmp_path: Path) -> None:
    app, run = build_app(recast_eval.commands, ""), CliRunner()
    written = run.invoke(app, ["review", str(evaluation), "--pairs", "3"])
    assert written.exit_code == 0, written.output
    page = next((evaluation / "review").glob("*.html")).stem
    path = ballot(tmp_path / "v.json", page, "ann", {"0001": "left", "0002": "tie"})
    came = run.invoke(app, ["review", str(evaluation), "--import", str(path)])
    assert "2 new votes" in came.output
