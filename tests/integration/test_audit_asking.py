"""Null tests asked of a real server on the loopback, through the command line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import recast_eval.commands
from recast_eval.console import build_app
from recast_eval.judging.audit_records import AuditRecord, JudgeAudit, Measured
from recast_eval.records import read_json
from tests.support.image_folders import make_folder
from tests.support.judge_server import JudgeServer, Script, always, honest


def evaluation(folder: Path, prompts: int) -> None:
    for seed, model in enumerate(("a", "b")):
        make_folder(folder / "images" / model, prompts=prompts, seed=seed)


def judged(folder: Path, server: JudgeServer, *more: str) -> None:
    given = ["judge", "--pairwise", "a", "b", "--out", str(folder)]
    where = ["--base-url", server.url, "--model", "mock"]
    result = CliRunner().invoke(build_app(recast_eval.commands, ""), [*given, *where, *more])
    assert result.exit_code == 0, result.output


def audited(folder: Path, *more: str, status: int = 0) -> JudgeAudit:
    app = build_app(recast_eval.commands, "")
    result = CliRunner().invoke(app, ["audit", str(folder), *more])
    assert result.exit_code == status, result.output
    (found,) = read_json(folder / "audit.json", AuditRecord).judges
    assert found.verdict in result.output
    return found


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")


def test_an_always_first_judge_from_call_to_verdict(tmp_path: Path) -> None:
    evaluation(tmp_path, 45)
    with JudgeServer(Script(verdict=always("A"))) as server:
        judged(tmp_path, server)
        before = server.calls
        found = audited(tmp_path, "--ask", "--nulls", "12")
        # the same picture twice is one question in both orders; a copy is two
        assert server.calls - before == 12 + 24
        again = audited(tmp_path, "--ask", "--nulls", "12")
        assert server.calls - before == 12 + 24  # nothing is paid twice
    assert found.level == "uninformative"
    assert found.position is not None
    assert isinstance(found.position.flips, Measured)
    assert found.position.flips.estimate == 1
    assert isinstance(found.raw_win_rate, Measured)
    assert found.raw_win_rate.estimate == 0.5
    assert {null.what for null in found.nulls} == {"same image", "re-encoded image"}
    for null in found.nulls:
        assert null.scored == null.asked == 12
        assert isinstance(null.first_slot, Measured)
        assert null.first_slot.estimate == 1
    assert again == found


def test_an_honest_judge_is_trusted_and_its_results_hold_no_null_pair(tmp_path: Path) -> None:
    evaluation(tmp_path, 60)
    with JudgeServer(Script(verdict=honest)) as server:
        judged(tmp_path, server)
        verdicts = (tmp_path / "verdicts.jsonl").read_bytes()
        found = audited(tmp_path, "--ask", "--nulls", "10")
    assert (tmp_path / "verdicts.jsonl").read_bytes() == verdicts
    assert found.position is not None
    assert isinstance(found.position.same_winner, Measured)
    assert found.position.same_winner.estimate == 1
    # between a picture and itself it always names the second: that is said, and is no ground
    # to throw away verdicts that survive every swap
    assert found.level == "trust it with care"
    assert "null test (same image): the first slot gets 0 %" in found.verdict


def test_a_null_test_that_fails_is_counted_and_status_1(tmp_path: Path) -> None:
    evaluation(tmp_path, 45)
    with JudgeServer(Script(verdict=honest)) as server:
        judged(tmp_path, server)
        server.script.refuse = 1.0
        found = audited(tmp_path, "--ask", "--nulls", "5", status=1)
    assert {null.scored for null in found.nulls} == {0}
    assert any("only 0 of 5 scored" in reason for reason in found.reasons)
