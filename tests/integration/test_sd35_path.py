"""``sd35m-ocr`` as it ships, on a small random SD3 with T5: trained twice, scored, judged, told."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from diffusers import StableDiffusion3Pipeline
from safetensors.torch import load_file

from recast_eval.records import CreditRecord, MetricRecord, read_records
from recast_train.checkpoint import list_checkpoints, read_card
from recast_train.session import run_recipe
from tests.support import tiny_scorers
from tests.support.tiny_sd3 import SIDE, save_tiny_sd3

WEIGHTS = {
    "clip-score": tiny_scorers.clip,
    "hpsv2": tiny_scorers.hpsv2,
    "pickscore": tiny_scorers.clip,
    "aesthetic": tiny_scorers.aesthetic,
    "image-reward": tiny_scorers.image_reward_folder,
}
METHODS = {"nft": [], "flow-grpo": ["method={kind: flow-grpo}"]}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    for name, make in WEIGHTS.items():
        make(folder / name)
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_tiny_sd3(tmp_path_factory.mktemp("models") / "tiny-sd35", t5=True)
    for part in ("text_encoder", "text_encoder_2", "text_encoder_3", "vae"):
        assert (folder / part / "model.safetensors").is_file() or part == "vae"
    return folder


def small(base: Path, weights: Path) -> list[str]:
    """What lets the recipe run on a CPU in seconds; nothing about how it trains."""
    rewards = ("clip-score", "hpsv2", "pickscore")
    return [
        f"model.base={base}",
        f"model.resolution={SIDE}",
        "model.max_sequence_length=8",
        "sampler.steps=4",
        "groups.prompts_per_epoch=2",
        "groups.group_size=4",
        "probes.groups=2",
        "epochs=3",
        "micro_batch=4",
        "threads=1",
        "samples_every=0",
        *(f"rewards.{name}.weights={weights / name}" for name in rewards),
    ]


@pytest.fixture(scope="module")
def runs(base: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for name, sets in METHODS.items():
        named = [f"name={name}", *small(base, weights), *sets]
        assert run_recipe("sd35m-ocr", out=root / name, overrides=named, device="cpu").finished
    return root


@pytest.mark.parametrize("name", METHODS)
def test_three_steps_and_an_adapter_that_diffusers_loads(runs: Path, base: Path, name: str) -> None:
    metrics = list(read_records(runs / name / "metrics.jsonl", MetricRecord))
    assert [m.step for m in metrics] == [1, 2, 3]
    assert all(m.values["grad_norm"] > 0 for m in metrics)
    assert all(scored == [8, 8] for m in metrics for scored in m.scored.values())
    assert {"clip-score", "hpsv2", "pickscore", "ocr-scene"} == metrics[0].scored.keys()
    assert [c.weights for c in read_records(runs / name / "credit.jsonl", CreditRecord)]
    last = list_checkpoints(runs / name / "checkpoints")[-1]
    card = read_card(last)
    assert card.rewards["pickscore"] == "pickscore"
    assert "image-reward" in card.heldout
    pipeline = StableDiffusion3Pipeline.from_pretrained(base)
    pipeline.load_lora_weights(last / "adapter")
    moved = load_file(last / "adapter" / "adapter_model.safetensors")
    assert any(v.abs().max() > 0 for k, v in moved.items() if "lora_B" in k)
    assert torch.isfinite(torch.cat([v.flatten() for v in moved.values()])).all()


def command(words: list[str], folder: Path, weights: Path) -> "subprocess.CompletedProcess[str]":
    code = "from recast_eval.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "RECAST_WEIGHTS": str(weights)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_scored_judged_and_reported(runs: Path, weights: Path, tmp_path: Path) -> None:
    tuned = [str(list_checkpoints(runs / name / "checkpoints")[-1]) for name in METHODS]
    prompts = tmp_path / "signs.jsonl"
    rows = [
        {"prompt_id": f"p{i}", "prompt": f'a sign that says "{w}"', "category": "ocr"}
        for i, w in enumerate(("OPEN", "EXIT", "SALE"))
    ]
    prompts.write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
    many = ["--prompts", str(prompts), "--images-per-prompt", "1", "--device", "cpu"]
    scorers = [
        "--judges",
        "ocr-scene,aesthetic,image-reward",
        "--heldout",
        "aesthetic,image-reward",
    ]
    scored = command(["score", *tuned, *many, *scorers, "--out", "evals/all"], tmp_path, weights)
    assert scored.returncode == 0, scored.stdout + scored.stderr
    jury = ["--scorers", "aesthetic,image-reward", "--out", "evals/all"]
    judged = command(["judge", "--pairwise", *tuned, *many, *jury], tmp_path, weights)
    assert judged.returncode == 0, judged.stdout + judged.stderr
    told = command(["report", "evals/all", *(str(runs / n) for n in METHODS)], tmp_path, weights)
    assert told.returncode == 0, told.stdout + told.stderr
    page = (tmp_path / "evals/all/report.html").read_text("utf-8")
    assert "image-reward" in page
    assert "pickscore" in page
