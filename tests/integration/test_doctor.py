"""``recast-eval doctor`` says what runs, what is missing and what to type; it changes nothing."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import recast_eval.commands
from recast_eval.console import build_app
from recast_eval.scorers import SCORERS
from recast_eval.scoring.doctor import Finding, examine
from tests.support import tiny_scorers

SERVED = {
    "scorer hpsv3": "RECAST_HPSV3_URL",
    "scorer unified-reward": "RECAST_UNIFIED_REWARD_URL",
    "scorer vlm-pointwise": "RECAST_VLM_URL",
}


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*SERVED.values(), "OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RECAST_WEIGHTS", str(tmp_path))


def found() -> dict[str, Finding]:
    return {f.what: f for f in examine(build=False)}


def test_every_scorer_is_looked_at_and_nothing_missing_lacks_a_remedy(tmp_path: Path) -> None:
    before = found()
    assert {f"scorer {name}" for name in SCORERS} <= before.keys()
    for finding in before.values():
        assert finding.state == "ok" or finding.facts, finding
    for what, variable in SERVED.items():
        assert before[what].state == "missing"
        assert variable in before[what].facts
    assert before["scorer composition"].state == "ok"
    assert before["scorer pickscore"].state == "missing"
    assert "hf download yuvalkirstain/PickScore_v1" in before["scorer pickscore"].facts
    assert before["judging endpoint"].state == "missing"
    assert not list(tmp_path.iterdir())


def test_weights_in_the_users_folder_are_found(tmp_path: Path) -> None:
    tiny_scorers.clip(tmp_path / "pickscore")
    assert found()["scorer pickscore"].state == "ok"


def test_a_key_is_reported_as_set_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secretsecret")
    endpoint = found()["judging endpoint"]
    assert endpoint.state == "ok"
    assert "key set" in endpoint.facts
    assert "secretsecret" not in endpoint.facts


def test_the_command_prints_a_table_and_leaves_with_0_while_nothing_is_broken() -> None:
    app = build_app(recast_eval.commands, "")
    result = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "scorer composition" in result.output
