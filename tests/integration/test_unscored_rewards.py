"""Rewards that cannot score: said while a run runs, and counted at its end."""

from pathlib import Path

import pytest
import typer
import yaml

from recast_eval.errors import RecastError
from recast_eval.records import MetricRecord, read_records
from recast_train.commands.run import run
from recast_train.parts import Parts
from recast_train.rewards import unscored
from tests.support.tiny_run import tiny_recipe, tiny_run
from tests.support.tiny_sd3 import save_tiny_sd3


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_sd3(tmp_path_factory.mktemp("tiny") / "sd3")


def _metrics(parts: Parts) -> list[MetricRecord]:
    return list(read_records(parts.folder.metrics, MetricRecord))


@pytest.mark.parametrize(
    ("rewards", "mode"), [({"dead": 1}, "advantage"), ({"flat": 1, "dead": 1}, "pre")]
)
def test_a_run_that_could_learn_nothing_stops(
    base: Path, tmp_path: Path, rewards: dict[str, int], mode: str
) -> None:
    recipe = tiny_recipe(base, rewards=rewards, mode=mode)
    said = r"epoch 1: nothing to learn from: dead could score none of 12 images \(no server\)"
    with pytest.raises(RecastError, match=said):
        tiny_run(recipe, tmp_path / "run")


def test_a_silent_reward_beside_another_is_said_once(
    base: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rewards = {"red": 1, "dead": 1, "absent": 1, "patchy": 1}
    recipe = tiny_recipe(base, rewards=rewards, epochs=2, steps_per_epoch=2)
    parts = tiny_run(recipe, tmp_path / "run")
    warnings = [r.getMessage() for r in caplog.records if "epoch" in r.getMessage()]
    assert warnings == [
        "epoch 1: dead could score none of 12 images (no server): it trains nothing",
        "epoch 1: absent applies to none of these 12 images: it trains nothing",
        "epoch 1: patchy could not score 1 of 12 images (blur)",
    ]
    records = _metrics(parts)
    assert {k: v for k, v in records[0].values.items() if k.startswith("failed/")} == {
        "failed/dead": 12.0,
        "failed/patchy": 1.0,
    }
    assert all(record.values["grad_norm"] > 0 for record in records)
    assert unscored(records) == [
        "dead could not be scored for 24 of 24 images",
        "patchy could not be scored for 2 of 24 images",
        "absent applied to none of the run's 24 images",
    ]


def test_the_command_says_it_and_leaves_with_1(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a red circle\na blue circle\na green circle\n", "utf-8")
    values = tiny_recipe(base, rewards={"finish": 1, "ocr": 1}, epochs=1)  # no text is asked for
    values["prompts"] = {"set": str(prompts)}
    recipe = tmp_path / "r.yaml"
    recipe.write_text(yaml.safe_dump(values), "utf-8")
    for resume in (False, True):  # a finished run says so again
        with pytest.raises(typer.Exit) as left:
            run(str(recipe), out=tmp_path / "run", resume=resume, device="cpu")
        assert left.value.exit_code == 1
        assert "ocr applied to none of the run's 12 images" in capsys.readouterr().err
