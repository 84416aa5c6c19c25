"""The SD3.5 recipes hold the papers' published settings, and their sweeps the papers' points."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from recast_eval.errors import ConfigError
from recast_train.config import load_plan, make_plan
from recast_train.loop import mixed_advantages
from recast_train.prompts import load_prompts
from recast_train.recipe_files import find_recipe, find_sweep, shipped_sweeps
from recast_train.sweep import SweepRun, plan_runs, read_sweep, run_sweep

BUDGETS = [(1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 1, 1), (1, 1, 2, 1), (1, 1, 1, 2)]

REWARDS = {"ocr": "ocr-scene", "geneval": "geneval"}


@pytest.mark.parametrize("target", ["ocr", "geneval"])
def test_the_published_setting(target: str) -> None:
    plan = load_plan(find_recipe(f"sd35m-{target}"))
    recipe = plan.recipe
    assert list(recipe.rewards) == ["clip-score", "hpsv2", "pickscore", REWARDS[target]]
    assert (recipe.sampler.steps, recipe.groups.prompts_per_epoch, recipe.groups.group_size) == (
        25,
        48,
        24,
    )
    assert (plan.method_config.beta, plan.method_config.kl) == (0.1, 1e-4)
    assert int(recipe.sampler.steps * plan.method_config.timestep_fraction) == 24
    assert plan.method_config.old_decay.at(250) == 0.25
    assert (plan.policy_config.lora.rank, plan.policy_config.lora.alpha) == (32, 64)
    assert recipe.mode == "pre"
    np.testing.assert_allclose(plan.scales, [1, 1, 1 / 26, 1])
    assert set(recipe.heldout) == {"image-reward", "aesthetic", "hpsv3", "unified-reward"}


@pytest.mark.parametrize("target", ["ocr", "geneval"])
def test_the_sweep_is_five_budgets_three_seeds_and_two_credits(target: str) -> None:
    sweep, recipe = read_sweep(find_sweep(f"sd35m-{target}"))
    assert recipe == f"sd35m-{target}"
    assert [tuple(b.values()) for b in sweep.budgets] == BUDGETS
    assert len(plan_runs(sweep)) == 30
    plans = [load_plan(find_recipe(recipe), run.overrides) for run in plan_runs(sweep)[:2]]
    assert [p.credit.name for p in plans] == ["static", "recast-online"]
    assert plans[0].recipe.rewards == plans[1].recipe.rewards


def test_marble_mixes_both_prompt_sets() -> None:
    plan = load_plan(find_recipe("sd35m-marble"))
    prompts = load_prompts(plan.recipe.prompts)
    assert len(prompts) == 312 + 940
    assert sum('"' in p for p in prompts) == 312
    assert (plan.aggregator.name, plan.aggregator_config.rho) == ("marble", 0.7)


def test_a_scale_must_be_positive() -> None:
    with pytest.raises(ConfigError, match=r"rewards\.ocr-scene\.scale: must be positive, got 0"):
        load_plan(find_recipe("sd35m-ocr"), ["rewards.ocr-scene.scale=0"])


def test_a_scale_changes_the_mixture_of_raw_rewards() -> None:
    values = {
        "name": "s",
        "seed": 1,
        "model": {"base": "starter"},
        "prompts": {"set": "signs"},
        "groups": {"prompts_per_epoch": 1, "group_size": 3},
        "rewards": {"ocr": 1, "finish": {"budget": 1, "scale": 0.1}},
        "method": {"kind": "nft"},
        "epochs": 1,
        "mode": "pre",
    }
    plan = make_plan(values)
    weights = np.full((2, 10), 0.5 / 10)
    parts: Any = SimpleNamespace(
        plan=plan,
        credit=SimpleNamespace(weights=lambda: weights),
        density=None,
        column_mass=None,
        aggregator=SimpleNamespace(coefficients=lambda: plan.budgets, whiten=False),
    )
    raw, groups = np.array([[0.0, 1.0, 2.0], [20.0, 10.0, 0.0]]), np.zeros(3, dtype=int)
    # ocr + finish / 10 is 2, 2, 2: nothing to prefer; unscaled, the first would win.
    assert np.abs(mixed_advantages(parts, raw, groups).numpy()).max() < 1e-6


def test_a_wrong_sweep_name_gets_the_near_ones() -> None:
    assert {p.stem for p in shipped_sweeps()} == {"sd35m-ocr", "sd35m-geneval"}
    with pytest.raises(ConfigError, match="no sweep 'sd35m-ocx'; did you mean sd35m-ocr"):
        find_sweep("sd35m-ocx")


def test_a_run_of_several_processes_is_started_as_torchrun_does(tmp_path: Path) -> None:
    from recast_train.sweep import _command

    run = SweepRun("one", ("seed=1",))
    command = _command(run, "sd35m-ocr", tmp_path, 8)
    assert command[1:5] == ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=8"]
    assert command[5:9] == ["-m", "recast_train", "run", "sd35m-ocr"]
    assert run_sweep([], "sd35m-ocr", tmp_path, engine="local", workers=1) == {}
