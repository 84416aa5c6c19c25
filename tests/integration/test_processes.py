"""Two processes through both launchers: sharded, one of them killed, gone on with otherwise."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from recast_eval.records import Manifest, MetricRecord, read_json, read_records
from recast_train.checkpoint import list_checkpoints
from recast_train.session import run_recipe
from tests.support.tiny_sd3 import save_tiny_sd3

EPOCHS = 5
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc_per_node=2"]
FSDP2 = [
    *("accelerate.commands.launch", "--use_fsdp", "--fsdp_version", "2"),
    *("--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"),
    *("--dynamo_backend", "no", "--main_process_port", "0"),
]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipe")
    prompts = [f"a {c} circle on a white card" for c in ("red", "blue", "green", "black")]
    (folder / "prompts.txt").write_text("\n".join(prompts) + "\n", "utf-8")
    values: dict[str, Any] = {
        "name": "tiny",
        "seed": 5,
        "model": {
            "base": str(save_tiny_sd3(folder / "base")),
            "max_sequence_length": 4,
            "lora": {"rank": 2, "alpha": 4},
        },
        "sampler": {"steps": 3},
        "prompts": {"set": str(folder / "prompts.txt")},
        "groups": {"prompts_per_epoch": 4, "group_size": 3},
        "rewards": {"finish": 1, "composition": 1},
        # Probes, and a number of work items that two do not divide: both must not wait for ever.
        "credit": {"kind": "recast-online", "refresh_every": 2, "correct_every": 4},
        "aggregator": {"kind": "marble", "refresh_every": 2},
        "method": {"kind": "nft", "timestep_fraction": 0.4},
        "optimiser": {"learning_rate": 1e-2},
        "epochs": EPOCHS,
        "micro_batch": 2,
        "threads": 1,
        "checkpoint_every": 1,
        "keep_checkpoints": 0,
        "samples_every": 2,
        "sample_prompts": 2,
    }
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(values), "utf-8")
    return path


def _start(launcher: list[str], recipe: Path, out: Path, *flags: str) -> "subprocess.Popen[str]":
    words = ["-m", "recast_train", "run", str(recipe), "--out", str(out), "--device", "cpu"]
    return subprocess.Popen(
        [sys.executable, "-m", *launcher, *words, *flags],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def _worker(launcher: int, rank: int) -> int:
    for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        if f"\0RANK={rank}\0".encode() in b"\0" + Path(f"/proc/{child}/environ").read_bytes():
            return int(child)
    raise AssertionError("no such worker")


def _weights(out: Path, place: int) -> torch.Tensor:
    folder = list_checkpoints(out / "checkpoints")[place] / "adapter"
    found = load_file(folder / "adapter_model.safetensors")
    return torch.cat([found[k].flatten() for k in sorted(found)])


def test_sharded_killed_and_gone_on_with(recipe: Path, tmp_path: Path) -> None:
    assert run_recipe(str(recipe), out=tmp_path / "one", device="cpu").finished
    two = tmp_path / "two"
    first = _start(FSDP2, recipe, two)
    deadline = time.monotonic() + 400
    while not (two / "metrics.jsonl").exists() or len(_steps(two)) < 2:
        assert first.poll() is None, first.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(_worker(first.pid, 1), signal.SIGKILL)
    said = first.communicate(timeout=120)[1]
    assert first.returncode != 0
    assert "process 0 of 2 stops: another one ended or did not answer" in said
    assert "--resume" in said
    assert read_json(two / "manifest.json", Manifest).facts["sharded"] is True
    # What was sharded is the same run: its first checkpoint, and after going on, its last.
    torch.testing.assert_close(_weights(two, 0), _weights(tmp_path / "one", 0), rtol=0, atol=1e-5)
    second = _start(TORCHRUN, recipe, two, "--resume")
    said = second.communicate(timeout=400)[1]
    assert second.returncode == 0, said
    assert _steps(two) == list(range(1, EPOCHS + 1))
    torch.testing.assert_close(_weights(two, -1), _weights(tmp_path / "one", -1), rtol=0, atol=1e-3)


def _steps(out: Path) -> list[int]:
    return [r.step for r in read_records(out / "metrics.jsonl", MetricRecord)]


def test_a_policy_that_cannot_be_split_is_refused_before_the_processes_meet(tmp_path: Path) -> None:
    fsdp = {"WORLD_SIZE": "2", "RANK": "0", "ACCELERATE_USE_FSDP": "true"}
    out = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-m", "recast_train", "run", "starter-rebrl", "--out", str(out)],
        env={**os.environ, **fsdp},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2, done.stderr
    assert "masked does not split its weights" in done.stderr
    assert "torchrun" in done.stderr
    assert not out.exists()
