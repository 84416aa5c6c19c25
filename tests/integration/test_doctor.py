"""``recast-eval doctor`` says what runs, what is missing and what to type; it changes nothing."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import recast_eval.commands
from recast_eval.console import build_app
from recast_eval.errors import MissingError
from recast_eval.scorers import SCORERS
from recast_eval.scorers.needed import troubles
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


WEIGHTS = {
    "clip-score": tiny_scorers.clip,
    "pickscore": tiny_scorers.clip,
    "hpsv2": tiny_scorers.hpsv2,
    "aesthetic": tiny_scorers.aesthetic,
    "image-reward": tiny_scorers.image_reward_folder,
    "geneval": tiny_scorers.geneval,
    "vqa-score": tiny_scorers.qwen,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every scorer's weights, small, as a user would lay them out."""
    folder = tmp_path_factory.mktemp("weights")
    for name, make in WEIGHTS.items():
        (folder / name).mkdir()
        make(folder / name)
    return folder


def test_what_doctor_asks_for_is_what_the_loaders_need(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole folders are ok; without any of the files named it is not, and loading fails too."""
    monkeypatch.setenv("RECAST_WEIGHTS", str(whole))
    assert {n: found()[f"scorer {n}"].state for n in WEIGHTS} == dict.fromkeys(WEIGHTS, "ok")
    monkeypatch.setenv("RECAST_WEIGHTS", str(tmp_path))
    for name in WEIGHTS:
        for part in SCORERS.load(name).parts:
            for names in part.files:
                target = tmp_path / name
                shutil.copytree(whole / name, target)
                for alternative in names.split("|"):
                    (target / part.folder / alternative).unlink(missing_ok=True)
                (trouble,) = troubles(SCORERS.load(name).parts, target, local=True)
                assert trouble.kind == "missing"
                assert str(target / part.folder / names.split("|")[0]) in trouble.what
                assert str(target / part.folder) in trouble.remedy
                with pytest.raises(MissingError, match=re.escape(trouble.what)):
                    SCORERS.load(name).build()
                shutil.rmtree(target)


def test_doctor_tells_what_is_missing_of_a_folder_and_how_to_get_it(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECAST_WEIGHTS", str(tmp_path))
    for name in WEIGHTS:
        shutil.copytree(whole / name, tmp_path / name)
        spec = SCORERS.load(name)
        for alternative in spec.parts[-1].files[-1].split("|"):
            (tmp_path / name / spec.parts[-1].folder / alternative).unlink(missing_ok=True)
    findings = found()
    for name in WEIGHTS:
        part, finding = SCORERS.load(name).parts[-1], findings[f"scorer {name}"]
        assert finding.state == "missing", finding
        assert str(tmp_path / name / part.folder / part.files[-1].split("|")[0]) in finding.facts
        assert part.get.split("{folder}")[0] in finding.facts


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda p: p.write_bytes(p.read_bytes()[:-9]), "cannot be read"),
        (lambda p: p.write_bytes(b"PK\x03\x04 a pickled checkpoint renamed"), "cannot be read"),
        (lambda p: save_file({"x": torch.zeros(2)}, p), "is another checkpoint: it has no"),
    ],
    ids=["cut", "pickled", "another"],
)
def test_a_converted_file_that_cannot_be_used_is_named(
    damage: Callable[[Path], Any],
    says: str,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RECAST_WEIGHTS", str(tmp_path))
    for name in ("hpsv2", "image-reward", "aesthetic"):
        shutil.copytree(whole / name, tmp_path / name)
        file = tmp_path / name / f"{name}.safetensors"
        damage(file)
        finding = found()[f"scorer {name}"]
        assert finding.state == "broken"
        assert f"{file} {says}" in finding.facts
        assert f"{tmp_path / name}/{name}.safetensors (convert.py" in finding.facts


def test_a_file_of_a_split_model_is_missed(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECAST_WEIGHTS", str(tmp_path))
    folder = tmp_path / "vqa-score"
    shutil.copytree(whole / "vqa-score", folder)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": names}))
    finding = found()["scorer vqa-score"]
    assert finding.state == "missing"
    assert "model-00002-of-00002.safetensors is missing" in finding.facts
    assert "00001" not in finding.facts
    index.write_text("{")
    assert "lists no files" in found()["scorer vqa-score"].facts


def test_without_a_folder_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RECAST_WEIGHTS")
    facts = found()["scorer hpsv2"].facts
    assert "export RECAST_WEIGHTS=" in facts
    assert "convert.py HPS_v2.1_compressed.pt $RECAST_WEIGHTS/hpsv2/hpsv2.safetensors" in facts
