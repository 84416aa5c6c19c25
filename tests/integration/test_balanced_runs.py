"""Methods and aggregators through the real loop, on a tiny SD3."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recast_eval.records import MetricRecord, read_records
from recast_train.parts import Parts
from tests.support.tiny_run import flat_parameters, tiny_recipe, tiny_run
from tests.support.tiny_sd3 import save_tiny_sd3

ROOT = Path(__file__).parents[2]
METHODS = ("nft", "flow-grpo", "flow-grpo-fast", "mix-grpo", "grpo-guard", "tempflow", "awm")
AGGREGATORS = ("weighted-sum", "zscore-sum", "marble", "mgda", "pcgrad", "cagrad")
SHORT = {"flow-grpo-fast": {"window": {"size": 2}}, "tempflow": {"window": {"branches": 2}}}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_sd3(tmp_path_factory.mktemp("tiny") / "sd3")


def _method(name: str) -> dict[str, Any]:
    return {"kind": name} | SHORT.get(name, {})


def _metrics(parts: Parts) -> list[MetricRecord]:
    return list(read_records(parts.folder.metrics, MetricRecord))


@pytest.mark.parametrize("mode", ["advantage", "loss"])
def test_marble_of_one_reward_is_nft_to_the_bit(base: Path, tmp_path: Path, mode: str) -> None:
    recipe = tiny_recipe(base, rewards={"red": 1}, mode=mode, epochs=3)
    plain = tiny_run(recipe, tmp_path / "plain")
    marble = tiny_run({**recipe, "aggregator": {"kind": "marble"}}, tmp_path / "marble")
    assert torch.equal(flat_parameters(plain), flat_parameters(marble))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(base: Path, tmp_path: Path, method: str) -> None:
    recipe = tiny_recipe(base, method=_method(method), aggregator={"kind": "marble"}, epochs=2)
    parts = tiny_run(recipe, tmp_path / "run")
    values = [v for record in _metrics(parts) for v in record.values.values()]
    assert np.isfinite(values).all()
    assert torch.isfinite(flat_parameters(parts)).all()
    first = _metrics(parts)[0].values
    if "ratio_mean" in first:
        assert first["ratio_mean"] == pytest.approx(1.0, abs=1e-6)  # ones, weighted and summed
        assert first["clip_fraction"] == 0.0


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_a_constant_reward_does_no_harm(base: Path, tmp_path: Path, aggregator: str) -> None:
    recipe = tiny_recipe(
        base,
        rewards={"red": 1, "blue": 1, "flat": 1},
        aggregator={"kind": aggregator},
        method={"kind": "nft", "kl": 0.0},
    )
    parts = tiny_run(recipe, tmp_path / "run")
    assert torch.isfinite(flat_parameters(parts)).all()
    values = _metrics(parts)[0].values
    assert np.isfinite(list(values.values())).all()
    if parts.aggregator.needs_advantages == "zscore" and aggregator != "zscore-sum":
        assert values["aggregator/active"] == 2.0


def test_refresh_equals_an_ordinary_step_at_its_own_weights(base: Path, tmp_path: Path) -> None:
    # CAGrad of radius 0 is the mean of the gradients: by the identity, the plain weighted sum.
    recipe = tiny_recipe(base, epochs=2)
    switches = {"kind": "cagrad", "radius": 0.0, "refresh_every": 1}
    balanced = tiny_run({**recipe, "aggregator": switches}, tmp_path / "balanced")
    plain = tiny_run(recipe, tmp_path / "plain")
    moved = (flat_parameters(plain) - flat_parameters(balanced)).norm()
    # AdamW divides by the gradient's size, so that rounding is seen where it is near 0.
    assert moved <= 1e-3 * flat_parameters(plain).norm()


def test_gram_from_a_share_of_the_work(base: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(base, epochs=2, micro_batch=2)
    every = {"kind": "marble", "refresh_every": 1, "start": "budgets"}
    parts = tiny_run({**recipe, "aggregator": every | {"gram_share": 0.5}}, tmp_path / "half")
    values = _metrics(parts)[0].values
    assert 0.0 < values["aggregator/cosine_error"] < 2.0
    assert values["aggregator/coefficient/0"] + values["aggregator/coefficient/1"] == (
        pytest.approx(1.0)
    )


def test_resumed_marble_is_the_whole_run(base: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(base, aggregator={"kind": "marble", "refresh_every": 3}, epochs=4)
    whole = tiny_run(recipe, tmp_path / "whole")
    # Stopped between two refreshes: the coefficients come from the checkpoint.
    assert tiny_run(recipe, tmp_path / "parts", stop_after=2).epoch == 2
    resumed = tiny_run(recipe, tmp_path / "parts")
    assert torch.equal(flat_parameters(resumed), flat_parameters(whole))


@pytest.mark.parametrize(
    ("method", "switches"),
    [
        ("nft", {"kind": "marble"}),
        # One item of the nine: the second process has nothing to measure.
        ("nft", {"kind": "marble", "gram_share": 0.05, "start": "budgets"}),
        ("tempflow", {"kind": "weighted-sum"}),
    ],
)
def test_two_processes_equal_one(
    base: Path, tmp_path: Path, method: str, switches: dict[str, Any]
) -> None:
    recipe = tiny_recipe(base, method=_method(method), aggregator=switches, epochs=5)
    one = flat_parameters(tiny_run(recipe, tmp_path / "one")).numpy()
    script = ROOT / "tests" / "support" / "tiny_run.py"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    subprocess.run(
        [*launch, "--nproc_per_node=2", str(script), json.dumps(recipe), str(tmp_path / "two")],
        check=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        timeout=300,
    )
    ranks = [np.load(tmp_path / f"two.rank{rank}.npy") for rank in (0, 1)]
    np.testing.assert_array_equal(*ranks)
    # Sums over two halves round differently, and AdamW, which divides by the gradient's own
    # size, turns that into a relative change of near-zero entries; five steps of 1e-2 moved
    # the parameters by 5e-2 at most.
    np.testing.assert_allclose(ranks[0], one, rtol=0, atol=5e-4)
