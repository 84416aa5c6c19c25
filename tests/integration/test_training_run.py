"""``recast-train run`` as a user meets it: killed, stopped, resumed, given nonsense."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file

from recast_eval.errors import ConfigError, DataError
from recast_eval.records import MetricRecord, read_records
from recast_train.checkpoint import list_checkpoints, read_card
from recast_train.run_folder import RunFolder
from recast_train.session import run_recipe
from tests.support.tiny_sd3 import save_tiny_sd3

EPOCHS = 6


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipe")
    prompts = [f"a {c} circle on a white card" for c in ("red", "blue", "green", "black", "yellow")]
    (folder / "prompts.txt").write_text("\n".join(prompts) + "\n", "utf-8")
    values: dict[str, Any] = {
        "name": "tiny",
        "seed": 5,
        "model": {
            "base": str(save_tiny_sd3(folder / "base")),
            "max_sequence_length": 4,
            "lora": {"rank": 2, "alpha": 4},
        },
        "sampler": {"steps": 3, "rollout_batch": 5},
        "prompts": {"set": str(folder / "prompts.txt")},
        "groups": {"prompts_per_epoch": 2, "group_size": 3},
        "rewards": {"finish": 1, "composition": 1},
        "method": {"kind": "nft", "old_decay": {"kind": "linear", "rate": 1, "ceiling": 0.5}},
        "optimiser": {"learning_rate": 1e-2},
        "epochs": EPOCHS,
        "steps_per_epoch": 2,
        "micro_batch": 2,
        "threads": 1,
        "checkpoint_every": 1,
        "samples_every": 3,
        "sample_prompts": 3,
    }
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(values), "utf-8")
    return path


def _start(recipe: Path, out: Path, *flags: str) -> "subprocess.Popen[str]":
    code = "from recast_train.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "run", str(recipe), "--out", str(out), *flags],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait_for(out: Path, lines: int, process: "subprocess.Popen[str]") -> None:
    metrics = out / "metrics.jsonl"
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= lines:
            return
        time.sleep(0.005)


@pytest.fixture(scope="module")
def whole(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    assert run_recipe(str(recipe), out=out).finished
    return out


def _numbers(out: Path) -> list[dict[str, float]]:
    return [
        {"step": r.step} | {k: v for k, v in r.values.items() if not k.startswith("seconds")}
        for r in read_records(out / "metrics.jsonl", MetricRecord)
    ]


def _same_end(a: Path, b: Path) -> None:
    ends = [list_checkpoints(run / "checkpoints")[-1] for run in (a, b)]
    assert ends[0].name == ends[1].name
    cards = [read_card(end) for end in ends]
    assert cards[0].files == cards[1].files  # the SHA-256 of adapter and of all state
    assert _numbers(a) == _numbers(b)


def test_what_a_run_leaves(whole: Path) -> None:
    assert {p.name for p in whole.iterdir() if p.name != ".lock"} == {
        *("recipe.yaml", "manifest.json", "metrics.jsonl", "credit.jsonl"),
        *("samples", "checkpoints"),
    }
    numbers = _numbers(whole)
    assert [n["step"] for n in numbers] == list(range(1, 2 * EPOCHS + 1))
    assert {"loss", "kl", "grad_norm", "old_decay", "reward/finish"} <= numbers[0].keys()
    names = [p.name for p in list_checkpoints(whole / "checkpoints")]
    assert names == ["step-000008", "step-000010", "step-000012"]
    assert sorted(p.name for p in (whole / "samples").iterdir()) == [
        f"epoch-{n:06d}.png" for n in (1, 3, 6)
    ]
    card = read_card(whole / "checkpoints" / "step-000012")
    assert card.rewards.keys() == {"finish", "composition"}
    adapter = load_file(whole / "checkpoints/step-000012/adapter/adapter_model.safetensors")
    assert any(t.abs().sum() > 0 for n, t in adapter.items() if "lora_B" in n)


def test_killed_thrice_it_ends_as_if_never_stopped(
    recipe: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    for lines in (1, 4, 7):
        flags = ["--resume"] if (out / "recipe.yaml").exists() else []
        process = _start(recipe, out, *flags)
        _wait_for(out, lines, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    process = _start(recipe, out, "--resume")
    said = process.communicate(timeout=240)[1]
    assert process.returncode == 0, said
    _same_end(out, whole)


def test_ctrl_c_leaves_a_checkpoint_and_says_130(recipe: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = _start(recipe, out)
    _wait_for(out, 3, process)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=240)[1]
    assert process.returncode == 130, said
    assert "with a checkpoint" in said
    stopped = read_card(list_checkpoints(out / "checkpoints")[-1]).step
    assert stopped < 2 * EPOCHS
    assert [n["step"] for n in _numbers(out)][-1] == stopped
    assert run_recipe(str(recipe), out=out, resume=True).finished
    _same_end(out, whole)


def test_a_finished_run_does_nothing(
    recipe: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = {p: p.stat().st_mtime_ns for p in whole.rglob("*")}
    with caplog.at_level("INFO"):
        assert run_recipe(str(recipe), out=whole).finished
        assert run_recipe(str(recipe), out=whole, resume=True).finished
    assert caplog.text.count("nothing to do") == 2
    assert {p: p.stat().st_mtime_ns for p in whole.rglob("*")} == before


def test_refusals_before_any_step(recipe: Path, whole: Path, tmp_path: Path) -> None:
    changed = ["epochs=9", "method.beta=0.5"]
    with pytest.raises(ConfigError, match=r"epochs \(6 -> 9\), method\.beta \(1\.0 -> 0\.5\)"):
        run_recipe(str(recipe), out=whole, overrides=changed, resume=True)
    with pytest.raises(ConfigError, match="has 5"):
        run_recipe(str(recipe), out=tmp_path / "a", overrides=["groups.prompts_per_epoch=6"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x", "utf-8")
    with pytest.raises(ConfigError, match="is not empty"):
        run_recipe(str(recipe), out=tmp_path / "full")
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"prompt": "a", "prompt_id": "1"}\n{"prompt"\n', "utf-8")
    with pytest.raises(DataError, match=r"broken\.jsonl:2"):
        run_recipe(str(recipe), out=tmp_path / "b", overrides=[f"prompts.set={broken}"])
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()


def test_a_folder_that_another_process_trains_in(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with RunFolder(out).held():  # as slow as it takes the second one to come
        second = _start(recipe, out, "--resume")
        said = second.communicate(timeout=240)[1]
    assert second.returncode == 2, said
    assert "another process is training here" in said
    assert not (out / "recipe.yaml").exists()


def test_a_changed_byte_stops_a_resume(recipe: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    shutil.rmtree(out / "checkpoints" / "step-000012")
    with pytest.raises(ConfigError, match="add --resume"):
        run_recipe(str(recipe), out=out)
    state = out / "checkpoints" / "step-000010" / "state" / "run.safetensors"
    whole_bytes = state.read_bytes()
    state.write_bytes(whole_bytes[:-1] + bytes([whole_bytes[-1] ^ 1]))
    lines = (out / "metrics.jsonl").read_bytes()
    with pytest.raises(DataError, match="is not what was written"):
        run_recipe(str(recipe), out=out, resume=True)
    assert (out / "metrics.jsonl").read_bytes() == lines  # nothing already written is damaged
    state.write_bytes(whole_bytes)
    assert run_recipe(str(recipe), out=out, resume=True).finished
    _same_end(out, whole)
