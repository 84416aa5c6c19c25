"""``recast-eval score`` with a real, untrained SD3, a real adapter, and damaged input."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL, StableDiffusion3Pipeline
from peft import LoraConfig, get_peft_model_state_dict
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

import recast_eval.commands
from recast_eval.console import build_app
from recast_eval.content.prompts import load_prompt_set
from recast_eval.errors import ConfigError, DataError, RecastError
from recast_eval.images import load_image
from recast_eval.records import (
    CheckpointCard,
    ImageRecord,
    Manifest,
    Scored,
    ScoreRecord,
    file_sha256,
    read_json,
    read_records,
    write_json,
)
from recast_eval.scorers.world import draw_card, parse_caption
from recast_train.starter.autoencoder import CONFIG
from recast_train.starter.pipeline import build_pipeline

RULES = ["--judges", "composition,finish,verifier", "--batch", "4", "--device", "cpu"]
SMALL = ["--prompts", "starter-geneval", "--limit", "6", "--images-per-prompt", "1", *RULES]


def run(*words: object) -> Result:
    app = build_app(recast_eval.commands, "")
    return CliRunner().invoke(app, ["score", *map(str, words)])


def refused(result: Result, kind: type[RecastError]) -> str:
    assert isinstance(result.exception, kind), result.output
    return str(result.exception)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models") / "tiny"
    build_pipeline(AutoencoderKL(**CONFIG, shift_factor=0.0).eval(), 0).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def run_folder(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one checkpoint whose adapter changes what is drawn."""
    root = tmp_path_factory.mktemp("runs") / "tuned"
    folder = root / "checkpoints/step-000002"
    pipeline = StableDiffusion3Pipeline.from_pretrained(base, text_encoder_3=None, tokenizer_3=None)
    lora = LoraConfig(r=2, target_modules=["to_q", "to_k", "to_v"], init_lora_weights=False)
    pipeline.transformer.add_adapter(lora)
    StableDiffusion3Pipeline.save_lora_weights(
        str(folder / "adapter"),
        transformer_lora_layers=get_peft_model_state_dict(pipeline.transformer),
        transformer_lora_adapter_metadata=lora.to_dict(),
    )
    files = {
        p.relative_to(folder).as_posix(): file_sha256(p) for p in sorted(folder.glob("adapter/*"))
    }
    card = CheckpointCard(
        base_model=str(base),
        policy="sd3",
        step=2,
        recipe_name="tuned",
        recipe_digest="0" * 16,
        rewards={"composition": "card-segmentation"},
        heldout=["verifier"],
        sampler={"steps": 2, "guidance_scale": 1.0, "max_sequence_length": 8, "solver": "euler"},
        files=files,
    )
    write_json(folder / "checkpoint.json", card)
    return root


def cards(folder: Path, count: int = 6) -> Path:
    folder.mkdir(parents=True)
    prompts = load_prompt_set("starter-geneval").prompts
    rng, lines = np.random.default_rng(0), []
    for prompt in [prompts[i * len(prompts) // count] for i in range(count)]:
        scene = parse_caption(prompt.prompt)
        assert scene is not None
        draw_card(scene, rng).save(folder / f"{prompt.prompt_id}.png")
        row = {
            "file_name": f"{prompt.prompt_id}.png",
            "prompt": prompt.prompt,
            "prompt_id": prompt.prompt_id,
        }
        lines.append(json.dumps(row) + "\n")
    (folder / "metadata.jsonl").write_text("".join(reversed(lines)), encoding="utf-8")
    return folder


def test_base_checkpoint_and_folder_are_scored_side_by_side_once(
    base: Path, run_folder: Path, tmp_path: Path
) -> None:
    out, words = tmp_path / "e", [run_folder, base, cards(tmp_path / "drawn"), *SMALL]
    first = run(*words, "--out", out)
    assert first.exit_code == 0, first.output
    assert "images: 12 drawn, 6 copied, 0 there before; scores: 54 new" in first.output
    assert "composition  trained " in first.output
    assert "verifier     held out" in first.output
    scores = read_records(out / "scores.jsonl", ScoreRecord)
    assert len(scores) == 54
    assert {(s.scorer, s.role) for s in scores} == {
        ("composition", "train"),
        ("finish", "heldout"),
        ("verifier", "heldout"),
    }
    right = [s.outcome for s in scores if s.model == "drawn" and s.scorer == "verifier"]
    assert all(isinstance(o, Scored) and o.value == 1 for o in right)
    manifest = read_json(out / "manifest.json", Manifest)
    assert list(manifest.facts["models"]) == ["tuned", "tiny", "drawn"]
    assert manifest.facts["models"]["tiny"]["sampler"]["steps"] == 2
    assert str(tmp_path) not in (out / "manifest.json").read_text("utf-8")

    before = (out / "scores.jsonl").read_bytes()
    again = run(*words, "--out", out)
    assert again.exit_code == 0
    assert "nothing to do: all 18 images and 54 scores were there" in again.output
    assert (out / "scores.jsonl").read_bytes() == before


def test_images_depend_on_their_own_seed_and_on_the_adapter(
    base: Path, run_folder: Path, tmp_path: Path
) -> None:
    few = ["--steps", "2", "--guidance-scale", "1", *SMALL]
    assert run(base, *few, "--out", tmp_path / "a").exit_code == 0
    assert run(f"tiny={base}", *few, "--batch", "3", "--out", tmp_path / "b").exit_code == 0
    assert run(run_folder, *few, "--out", tmp_path / "c").exit_code == 0

    def pixels(folder: str, model: str) -> np.ndarray:
        path = tmp_path / folder / "images" / model
        records = read_records(path / "metadata.jsonl", ImageRecord)
        return np.stack([load_image(path / r.file_name).pixels for r in records]).astype(int)

    one = pixels("a", "tiny")
    assert np.abs(one - pixels("b", "tiny")).max() <= 1  # another batch: rounding alone
    assert np.abs(one - pixels("c", "tuned")).max() > 1


def test_images_are_drawn_by_the_solver_of_the_training(base: Path, tmp_path: Path) -> None:
    """What scoring draws is what the policy's own rollout draws from the same noise."""
    from recast_eval.content.prompts import Prompt
    from recast_eval.scoring.drawing import Job, Sampler, load_drawer
    from recast_eval.scoring.sources import ModelSource
    from recast_train.policies.base import PolicySetup
    from recast_train.policies.sd3.config import LoraBlock, Sd3Config
    from recast_train.policies.sd3.policy import Sd3Policy

    source = ModelSource("base", "pipeline", "base", base, str(base), "d")
    job = Job(Prompt(prompt_id="p", prompt="a red circle"), 0)
    for solver in ("euler", "dpm2"):
        sampler = Sampler(steps=6, guidance_scale=1.0, max_sequence_length=8, solver=solver)
        drawn = load_drawer(source, sampler, seed=0, device="cpu")([job])[0]
        pipeline = StableDiffusion3Pipeline.from_pretrained(
            base, text_encoder_3=None, tokenizer_3=None
        )
        setup = PolicySetup(
            steps=6,
            guidance_scale=1.0,
            solver=solver,
            shift=None,
            rollout_batch=0,
            precision="fp32",
            device="cpu",
            seed=0,
        )
        config = Sd3Config(max_sequence_length=8, lora=LoraBlock(rank=2, alpha=4.0))
        policy = Sd3Policy(pipeline, config, setup)
        noise = torch.Generator().manual_seed(job.seed(0))
        rollout = policy.rollout(policy.encode([job.prompt.prompt]), noise, {})
        wanted = policy.decode(rollout.x_0)[0]
        assert np.abs(drawn * 255 - wanted).max() <= 1.01, solver


def test_a_changed_byte_in_a_checkpoint_stops_before_drawing(
    run_folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "tuned"
    shutil.copytree(run_folder, copy)
    (weights,) = copy.glob("checkpoints/*/adapter/*.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    message = refused(run(copy, *SMALL, "--out", tmp_path / "e"), DataError)
    assert str(weights) in message
    assert "copy the checkpoint again" in message
    assert not (tmp_path / "e").exists()


def _renamed(weights: Path) -> None:
    tensors = load_file(weights)
    save_file({k.replace("transformer.", "unet.", 1): v for k, v in tensors.items()}, weights)


def _elsewhere(weights: Path) -> None:
    tensors = load_file(weights)
    save_file({k.replace("blocks.0.", "blocks.99.", 1): v for k, v in tensors.items()}, weights)


def _half(weights: Path) -> None:
    with safe_open(weights, "pt") as file:
        kept = {k: file.get_tensor(k) for k in file.keys() if "lora_A" in k}  # noqa: SIM118
        facts = file.metadata()
    save_file(kept, weights, metadata=facts)


def _other_file(weights: Path) -> None:
    weights.rename(weights.with_name("adapter_model.safetensors"))


def _other_form(weights: Path) -> None:
    weights.rename(weights.with_name("adapter_model.safetensors"))
    weights.with_suffix(".bin").write_bytes(b"x")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_renamed, "the base model has no place for"),
        (_elsewhere, "the base model has no place for"),
        (_half, "lacks"),
        (lambda p: save_file({}, p), "empty"),
        (_other_file, "missing"),
        (_other_form, "missing"),
    ],
)
def test_an_adapter_that_does_not_fit_never_draws_as_the_base(
    damage: Callable[[Path], None], says: str, run_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(run_folder, tmp_path / "tuned")
    (folder,) = (tmp_path / "tuned/checkpoints").iterdir()
    damage(folder / "adapter/pytorch_lora_weights.safetensors")
    card = read_json(folder / "checkpoint.json", CheckpointCard)
    files = {f"adapter/{p.name}": file_sha256(p) for p in (folder / "adapter").iterdir()}
    write_json(folder / "checkpoint.json", card.model_copy(update={"files": files}))
    message = refused(run(tmp_path / "tuned", *SMALL, "--out", tmp_path / "e"), DataError)
    assert says in message
    assert "pytorch_lora_weights.safetensors" in message
    assert not list(tmp_path.glob("e/images/*/*.png"))


@pytest.mark.parametrize(("cut", "says"), [(None, "no image"), (60, "truncated or damaged")])
def test_a_damaged_image_folder_stops_before_drawing(
    cut: int | None, says: str, base: Path, tmp_path: Path
) -> None:
    folder = cards(tmp_path / "drawn")
    path = sorted(folder.glob("*.png"))[2]
    if cut:
        path.write_bytes(path.read_bytes()[:cut])
    else:
        path.unlink()
    message = refused(run(base, folder, *SMALL, "--out", tmp_path / "e"), DataError)
    assert says in message
    assert path.name in message
    assert not (tmp_path / "e").exists()


def test_a_broken_prompt_line_leaves_with_status_2(base: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt_id": "a", "prompt": "a red circle"}\n{"prompt": 3}\n', "utf-8")
    words = ["score", str(base), "--prompts", str(path), *RULES, "--out", str(tmp_path / "e")]
    done = subprocess.run(
        [sys.executable, "-c", "from recast_eval.cli import main; main()", *words],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert f"error: {path}:2: " in done.stderr
    assert '{"prompt": 3}' in done.stderr
    assert "a line must read" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "e").exists()


def test_a_trained_family_cannot_be_held_out(run_folder: Path, tmp_path: Path) -> None:
    words = [run_folder, *SMALL, "--heldout", "composition", "--out", tmp_path / "e"]
    assert "cannot be held out" in refused(run(*words), ConfigError)


def test_what_could_not_be_drawn_is_counted_and_leaves_with_status_1(
    base: Path, tmp_path: Path
) -> None:
    pipeline = StableDiffusion3Pipeline.from_pretrained(base, text_encoder_3=None, tokenizer_3=None)
    pipeline.transformer.proj_out.bias.data.fill_(torch.nan)
    pipeline.save_pretrained(tmp_path / "ruined")
    few = ["--steps", "2", "--guidance-scale", "1", *SMALL, "--out", tmp_path / "e"]
    result = run(tmp_path / "ruined", cards(tmp_path / "drawn"), *few)
    assert result.exit_code == 1, result.output
    assert "6 of 24 could not be scored" in result.output


def test_a_copied_picture_that_was_damaged_is_mended(tmp_path: Path) -> None:
    words = [cards(tmp_path / "drawn"), *SMALL, "--out", tmp_path / "e"]
    assert run(*words).exit_code == 0
    victim = sorted((tmp_path / "e/images/drawn").glob("*.png"))[0]
    whole = victim.read_bytes()
    victim.write_bytes(whole[:50])
    again = run(*words)
    assert again.exit_code == 0
    assert "1 copied, 5 there before; scores: 0 new" in again.output
    assert victim.read_bytes() == whole


def test_what_does_not_apply_is_told_apart_and_is_no_failure(tmp_path: Path) -> None:
    folder = cards(tmp_path / "drawn")
    lines = (folder / "metadata.jsonl").read_text("utf-8").splitlines()
    row = json.loads(lines[0]) | {"prompt": "a photo of a dog"}
    text = "\n".join([json.dumps(row), *lines[1:]]) + "\n"
    (folder / "metadata.jsonl").write_text(text, "utf-8")
    result = run(folder, "--judges", "composition,finish", "--out", tmp_path / "e")
    assert result.exit_code == 0, result.output
    composition, finish = (
        next(line for line in result.output.splitlines() if line.startswith(name))
        for name in ("composition", "finish")
    )
    assert "(5/5, 1 not applicable)" in composition
    assert "(6/6)" in finish
    assert "could not be scored" not in result.output
