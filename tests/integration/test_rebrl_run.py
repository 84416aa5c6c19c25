"""RebRL through the real loop, from a recipe to a checkpoint, on tiny random models."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from recast_train.checkpoint import list_checkpoints, load_checkpoint
from recast_train.session import run_recipe
from tests.support.masked_models import write_model

pytestmark = pytest.mark.filterwarnings(
    "ignore:Already found a `peft_config`:UserWarning",
    "ignore:overflow encountered:RuntimeWarning",
)
ONLINE = [
    "epochs=2",
    "groups.group_size=6",
    "credit.refresh_every=1",
    "credit.correct_every=1",
    "credit.warm_up=0",
    "credit.min_reliability=0",
    "credit.replicates=10",
]
SMALL = [
    "sampler.steps=4",
    "groups.prompts_per_epoch=2",
    "groups.group_size=3",
    "checkpoint_every=1",
    "samples_every=0",
    "model.lora.rank=2",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("masked"))


def _run(out: Path, model: Path, recipe: str, *sets: str, resume: bool = False) -> None:
    overrides = [*SMALL, f"model.base={model}", *sets]
    assert run_recipe(recipe, out=out, overrides=overrides, resume=resume, device="cpu").finished


def _metrics(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("name", ["rebrl", "diffu-grpo", "mask-grpo", "maskgrpo", "coupled"])
def test_presets_train(name: str, model: Path, tmp_path: Path) -> None:
    _run(tmp_path, model, "starter-rebrl", "epochs=1", f"method.preset={name}")
    (record,) = _metrics(tmp_path)
    values = record["values"]
    assert values["rebrl/stage_credit_00"] > 0
    assert values["rebrl/token_weight_00"] > 0
    assert values["kl"] == pytest.approx(0, abs=1e-6)  # nothing was learnt before step 1
    assert values["grad_norm"] >= 0


@pytest.mark.parametrize(
    "sets",
    [
        ("method.preset=diffu-grpo", "sampler.solver=emerge"),
        ("method.preset=mask-grpo", "method.masks=shared_uniform", "method.min_share=0.9"),
    ],
)
def test_masks_of_chance_never_give_a_gradient_that_is_none(
    sets: tuple[str, ...], model: Path, tmp_path: Path
) -> None:
    """Sixteen tokens in twelve steps: the first steps often reveal nothing."""
    few = ("epochs=1", "sampler.steps=12", "groups.group_size=8")
    _run(tmp_path, model, "starter-rebrl", *few, *sets)
    (record,) = _metrics(tmp_path)
    assert record["values"]["grad_norm"] >= 0  # NaN is not


def test_a_resumed_run_ends_in_the_same_weights(model: Path, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    _run(whole, model, "starter-rebrl", "epochs=2")
    shutil.copytree(whole, broken)
    shutil.rmtree(broken / "checkpoints" / "step-000002")
    _run(broken, model, "starter-rebrl", "epochs=2", resume=True)
    first, second = (
        load_checkpoint(list_checkpoints(f / "checkpoints")[-1])[1] for f in (whole, broken)
    )
    moved = 0.0
    for name, value in first["policy"]["new"].items():
        assert bool((value == second["policy"]["new"][name]).all())
        moved += float(value.abs().sum()) if "lora_B" in name else 0.0
    assert moved > 0  # B starts at 0: something was learnt


def test_credit_columns_are_the_stage_credit(model: Path, tmp_path: Path) -> None:
    _run(tmp_path, model, "starter-rebrl", "epochs=1")
    line = (tmp_path / "credit.jsonl").read_text("utf-8").splitlines()[0]
    weights = np.array(json.loads(line)["weights"])
    np.testing.assert_allclose(weights.sum(1), [0.6, 0.4], atol=1e-9)
    # 16 tokens, 4 cosine stages: F = 1..4, so C_i = sum of n_j / (16 j) over j >= i
    np.testing.assert_allclose(weights.sum(0), [0.416667, 0.291667, 0.197917, 0.09375], atol=1e-6)


def test_recast_measures_gains_of_masked_stages(model: Path, tmp_path: Path) -> None:
    _run(tmp_path, model, "starter-rebrl-recast", *ONLINE)
    lines = (tmp_path / "credit.jsonl").read_text("utf-8").splitlines()
    weights = np.array(json.loads(lines[-1])["weights"])
    np.testing.assert_allclose(weights.sum(1), [0.6, 0.4], atol=1e-9)
    np.testing.assert_allclose(weights.sum(0), [0.416667, 0.291667, 0.197917, 0.09375], atol=1e-6)


def test_the_amused_recipe_trains_a_random_model_of_its_classes(tmp_path: Path) -> None:
    model = write_model(tmp_path / "vq", codebook=32, vq=True)
    _run(
        tmp_path / "run",
        model,
        "amused-256",
        "epochs=1",
        "rewards={finish: 1}",
        "sampler.rollout_batch=0",
        "precision=fp32",
    )
    (record,) = _metrics(tmp_path / "run")
    assert record["values"]["grad_norm"] >= 0
    assert (tmp_path / "run" / "checkpoints" / "step-000001" / "adapter").is_dir()
