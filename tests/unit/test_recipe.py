"""Recipes: every mistake is said, all at once, with its place and the right name."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import yaml

from recast_eval.errors import ConfigError, PluginError
from recast_eval.records import write_json
from recast_eval.scorers import ScorerCard, ScorerSpec
from recast_train.config import load_plan, make_plan, read_yaml
from recast_train.credit.gaussian import COARSE, FINE, draw, shifted_sigmas
from recast_train.credit.profile import Origin, build_profile
from recast_train.loop import draw_pieces
from recast_train.methods._policy_gradient import WindowConfig
from recast_train.recipe_files import find_recipe, head_line, shipped_recipes
from recast_train.session import check_processes
from recast_train.sweep import read_sweep


class _Book:
    families: ClassVar = {"ocr": "pp", "finish": "rules", "judge": "pp", "other": "tesseract"}

    def load(self, name: str) -> ScorerSpec:
        if name not in self.families:
            raise PluginError(f"no scorer {name!r}; did you mean ocr?")
        card = ScorerCard(
            name=name, version=1, family=self.families[name], what="a test", unit="share"
        )
        return ScorerSpec(card, lambda **options: None)  # type: ignore[arg-type,return-value]


def _values(**changes: Any) -> dict[str, Any]:
    return {
        "name": "r",
        "seed": 0,
        "model": {"base": "starter"},
        "prompts": {"set": "starter-ocr"},
        "groups": {"prompts_per_epoch": 2, "group_size": 4},
        "rewards": {"ocr": 3, "finish": 1},
        "method": {"kind": "nft"},
        "epochs": 5,
    } | changes


def _problems(*overrides: str, **changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make_plan(_values(**changes), overrides, source="r.yaml", scorers=_Book())
    return "\n".join(caught.value.problems)


def test_defaults_are_written_out_and_name_the_run() -> None:
    plan = make_plan(_values(), scorers=_Book())
    np.testing.assert_allclose(plan.budgets, [0.75, 0.25])
    assert list(plan.recipe.rewards) == ["ocr", "finish"]  # the recipe's order is W's order
    assert plan.solver == "euler"
    again = make_plan(plan.values(), scorers=_Book())
    assert again.values() == plan.values()
    assert again.digest() == plan.digest()
    other = make_plan(_values(), ["method.beta=0.5"], scorers=_Book())
    assert other.digest() != plan.digest()


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("mix-grpo", {"every": 3}, WindowConfig(kind="sliding", size=4, every=3)),
        ("tempflow", {"branches": 4}, WindowConfig(kind="branch", size=1, high=0.9, branches=4)),
        ("flow-grpo-fast", {"size": 2}, WindowConfig(kind="random", size=2, high=0.5)),
        ("flow-grpo-fast", {"kind": "all"}, WindowConfig()),
        ("tempflow", {"kind": "random", "size": 2}, WindowConfig(kind="random", size=2)),
    ],
)
def test_window_keys_change_the_methods_own_window(
    kind: str, given: dict[str, Any], expected: WindowConfig
) -> None:
    values = _values(method={"kind": kind, "window": given})
    plan = make_plan(
        values | {"groups": {"prompts_per_epoch": 2, "group_size": 12}}, scorers=_Book()
    )
    assert plan.method_config.window == expected
    assert make_plan(plan.values(), scorers=_Book()).method_config.window == expected


@pytest.mark.parametrize("key", ["ceiling=0.9", "rate=0.05", "flat=3"])
def test_a_decay_key_that_nothing_reads_is_said(key: str) -> None:
    said = f"method.old_decay.{key.partition('=')[0]}: has no effect with kind ramp"
    assert said in _problems(f"method.old_decay.{key}")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("method.window.branches=3", "must divide groups.group_size, .* got 3 and 4"),
        ("method.window.branches=1", "window.branches: must be 2 or more"),
        ("method.window.branches=0", "window.branches: must be 1 or more, got 0"),
        ("method.window.every=2", "method.window.every: has no effect with kind branch"),
        ("method.window={kind: all, size: 2}", "method.window.size: has no effect with kind all"),
        ("sampler.steps=1", r"method.window: a window of 1 does not fit .* \(sampler.steps\)"),
        ("method.window.size=10", "method.window: a window of 10 does not fit"),
    ],
)
def test_a_window_that_fits_nothing_is_said_before_anything_is_loaded(
    override: str, said: str
) -> None:
    window = {"kind": "branch", "size": 1, "high": 0.9, "branches": 2}
    method = {"kind": "tempflow", "window": window}
    make_plan(_values(method=method), scorers=_Book())
    assert re.search(said, _problems(override, method=method))


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A profile of ``ocr`` and ``other``; the mean of ``ocr`` is below 0."""
    sigmas = shifted_sigmas(6)
    generator = np.random.default_rng(0)
    samples = draw((COARSE, FINE), sigmas[1:-1], prompts=6, images=4, generator=generator)
    origin = Origin("toy", "0" * 16, "gaussian", "rollouts", ("ocr", "other"), sigmas)
    made = build_profile(origin, samples, generator=generator)
    path = tmp_path_factory.mktemp("profile") / "p.json"
    write_json(path, made.model_copy(update={"mean": [-1.0, 0.5], "published": None}))
    return str(path)


@pytest.mark.parametrize(
    ("credit", "said"),
    [
        ({"kind": "recast"}, "credit.profile .*: rewards: .* not finish"),
        ({"kind": "static-rms"}, "credit.profile .*: rewards: .* not finish"),
        ({"kind": "recast-published"}, "credit.profile .*: rewards: .* not finish"),
        ({"kind": "recast", "estimator": "guess"}, "estimator: .* not 'guess'"),
        ({"kind": "reversed", "gain": "d2"}, "credit.gain: .*mean > 0"),
        ({"kind": "recast-published"}, "credit.profile .*negative"),
        ({"kind": "separable", "temperature": {"ocr": 1.0}}, "credit.temperature: .*other"),
    ],
)
def test_a_profile_that_does_not_fit_is_said_before_anything_is_loaded(
    profile: str, credit: dict[str, Any], said: str
) -> None:
    rewards = {"ocr": 3, "finish" if "finish" in said else "other": 1}
    values = _values(rewards=rewards, credit={"kind": "recast", "profile": profile})
    if "finish" not in said:
        make_plan(values, scorers=_Book())
    assert re.search(said, _problems(rewards=rewards, credit={"profile": profile, **credit}))


@pytest.mark.parametrize(
    ("credit", "overrides", "said"),
    [
        ("{kind: recast-online}", ["probes.groups=1"], r"credit.kind: .* 2 prompts .* got 1"),
        ("{kind: recast-online}", ["groups.prompts_per_epoch=1"], "2 prompts .* got 1"),
        ("{kind: recast-online, temperature: {ocr: 1}}", [], "credit.temperature: .*finish"),
        ("{kind: fixed-columns, schedule: window, start: 8}", [], "credit.length: .* step 12 of"),
        ("{kind: recast-published, ratios: {ocr: setup.cfg}}", [], "credit.ratios: .*finish"),
    ],
)
def test_a_credit_that_cannot_learn_is_said_before_anything_is_loaded(
    credit: str, overrides: list[str], said: str
) -> None:
    assert re.search(said, _problems(f"credit={credit}", *overrides))


def test_one_prompt_is_enough_for_a_credit_with_nothing_to_share() -> None:
    sets = ["credit={kind: recast-online}", "probes.groups=1"]
    make_plan(_values(rewards={"ocr": 1}), sets, scorers=_Book())


def test_ratios_of_another_number_of_steps(tmp_path: Path) -> None:
    np.savez(tmp_path / "r.npz", ratio=np.ones((3, 7)), sigmas=np.linspace(1, 0, 8))
    files = {name: str(tmp_path / "r.npz") for name in ("ocr", "finish")}
    text = _problems(credit={"kind": "recast-published", "ratios": files})
    assert text.count(r"ratio must be (N, 10), got (3, 7)") == 2


def test_a_schedule_where_the_method_has_its_own() -> None:
    said = _problems(
        model={"kind": "masked"}, method={"kind": "rebrl"}, credit={"kind": "fixed-columns"}
    )
    assert "credit.kind: fixed-columns" in said


@pytest.mark.parametrize("steps", [16, 17])
def test_a_masked_policy_has_no_more_steps_than_tokens(tmp_path: Path, steps: int) -> None:
    (tmp_path / "transformer").mkdir()
    (tmp_path / "transformer" / "config.json").write_text('{"sample_size": 4}', "utf-8")
    model = {"kind": "masked", "base": str(tmp_path)}
    values = _values(model=model, method={"kind": "rebrl"}, sampler={"steps": steps})
    if steps == 16:
        make_plan(values, scorers=_Book())
        return
    with pytest.raises(ConfigError, match=r"sampler.steps.* 16 tokens.* 17"):
        make_plan(values, scorers=_Book())


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("epoch=3", "epoch: unknown key; did you mean epochs"),
        ("sampler.stepz=3", "sampler.stepz: unknown key; did you mean steps"),
        ("method.betta=1", "method.betta: unknown key; did you mean beta"),
        ("method.old_decay.rat=1", "method.old_decay.rat: unknown key; did you mean rate"),
        ("model.lora.rnak=4", "model.lora.rnak: unknown key; did you mean rank"),
        ("rewards.ocr.budgett=4", "rewards.ocr.budgett: unknown key; did you mean budget"),
        ("credit.temperature=1", "credit.temperature: unknown key"),
        ("epochs=many", "epochs: Input should be a valid integer"),
        ("epochs=0", "epochs: must be 1 or more, got 0"),
        ("rewards.ocr=-1", "rewards.ocr: a budget must not be negative, got -1"),
        ("epochs=true", "epochs: must be a number, got True"),
        ("optimiser.learning_rate=yes", "optimiser.learning_rate: must be a number"),
        ("optimiser.betas=[yes, 0.9]", "optimiser.betas.0: must be a number"),
        ("sampler.shift=on", "sampler.shift: must be a number"),
        ("rewards.ocr.budget=true", "rewards.ocr.budget: must be a number"),
        ("method.beta=yes", "method.beta: must be a number"),
        ("method.old_decay.rate=yes", "method.old_decay.rate: must be a number"),
        ("model.lora.rank=true", "model.lora.rank: must be a number"),
        ("rewards.ocr=.nan", "rewards.ocr.budget: Input should be a finite number"),
        ("rewards.blur=1", "rewards.blur: no scorer 'blur'; did you mean ocr"),
        ("method.kind=nftt", "method.kind: no recast.methods 'nftt'; did you mean nft"),
        ("method.kind=rebrl", "trains masked policies, but model.kind sd3 is velocity"),
        ("sampler.solver=heun", "sampler.solver: sd3 has euler, dpm2"),
        ("mode=post", "mode: Input should be 'advantage', 'pre' or 'loss'"),
        ("groups.group_size=1", "groups.group_size: must be 2 or more"),
        ("steps_per_epoch=9", "steps_per_epoch: 9 is more than the 8 images"),
        ("method.solver=sde", "method.solver: sd3 has euler, dpm2, got 'sde'"),
        ("method.solver=heun", "method.solver: sd3 has euler, dpm2, got 'heun'"),
        ("method={kind: awm, solver: cps}", "method.solver: sd3 has euler, dpm2, got 'cps'"),
        ("sample_prompts=0", "sample_prompts: must be 1 or more, or samples_every 0, got 0"),
        ("optimiser.eps=-1", "optimiser.eps: must be positive, got -1"),
        ("sampler.steps", "--set sampler.steps: must be key.path=value"),
        ("epochs=[", "--set 'epochs=[': the value is no YAML"),
    ],
)
def test_each_mistake_is_named(override: str, said: str) -> None:
    assert said in _problems(override)


@pytest.mark.parametrize(
    "overrides",
    [
        ["method.solver=dpm2"],
        ["method={kind: awm, solver: dpm2}"],
        ["method={kind: flow-grpo, solver: cps}"],  # its own stochastic step, not the policy's
        ["sample_prompts=0", "samples_every=0"],
    ],
)
def test_what_fits_is_let_through(overrides: list[str]) -> None:
    make_plan(_values(), overrides, scorers=_Book())


def test_all_mistakes_at_once_with_the_file() -> None:
    text = _problems("epochs=0", "seed=-1", "rewards.blur=1", "method.beta=-1")
    assert len(text.splitlines()) == 4
    assert all(line.startswith("r.yaml: ") for line in text.splitlines())


def test_budgets_whose_sum_overflows() -> None:
    assert "their sum must be finite" in _problems(rewards={"ocr": 1e308, "finish": 1e308})


def test_no_budget_at_all() -> None:
    assert "all budgets are 0" in _problems(rewards={"ocr": 0})
    assert "needs one reward or more" in _problems(rewards={})


def test_a_judge_of_a_rewards_family_is_not_held_out() -> None:
    text = _problems(heldout=["judge"])
    assert "judge shares the model family 'pp' with the reward ocr" in text
    make_plan(_values(heldout=["other"]), scorers=_Book())
    reason = {"heldout": ["judge"], "allow_shared_family": "to measure how much it matters"}
    plan = make_plan(_values(**reason), scorers=_Book())
    assert plan.values()["allow_shared_family"] == reason["allow_shared_family"]


def test_balancing_raw_rewards_is_refused() -> None:
    assert "has nothing to balance" in _problems(mode="pre", aggregator={"kind": "marble"})


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(yaml.safe_dump(_values()), "utf-8")
    plan = load_plan(path, ["optimiser.learning_rate=1e-2"], scorers=_Book())
    assert plan.recipe.optimiser.learning_rate == 0.01  # YAML itself reads 1e-2 as a text
    path.write_text("name: a\nname: b\n", "utf-8")
    with pytest.raises(ConfigError, match="'name' is given twice"):
        read_yaml(path)
    path.write_text("- a\n", "utf-8")
    with pytest.raises(ConfigError, match="must be a mapping"):
        read_yaml(path)
    with pytest.raises(ConfigError, match="no such file"):
        read_yaml(tmp_path / "none.yaml")
    path.write_text("a: !!python/object/apply:os.system [true]\n", "utf-8")
    with pytest.raises(ConfigError, match="could not determine a constructor"):
        read_yaml(path)


def test_more_processes_than_images_are_refused() -> None:
    assert draw_pieces(24, 4, 0) == [range(24)]
    assert draw_pieces(24, 4, 11) == [range(8), range(8, 16), range(16, 24)]
    assert draw_pieces(24, 4, 17) == [range(16), range(16, 24)]
    recipe = make_plan(_values(), scorers=_Book()).recipe  # 8 images in groups of 4
    check_processes(recipe, 8)
    with pytest.raises(ConfigError, match="9 processes, but 8 of the epoch's 8 images are drawn"):
        check_processes(recipe, 9)
    recipe = make_plan(_values(), ["sampler.rollout_batch=4"], scorers=_Book()).recipe
    with pytest.raises(ConfigError, match=r"5 processes, .* a larger sampler.rollout_batch"):
        check_processes(recipe, 5)


IMPOSSIBLE = {
    "no such date": "2020-13-01",
    "a number without digits": "0x_",
    "a float that is none": "!!float abc",
    "a time that is none": "!!timestamp abc",
    "too many digits": "9" * 5000,
    "too deep": "[" * 3000 + "]" * 3000,
    "a key twice": "{a: 1, a: 2}",
}


@pytest.mark.parametrize("value", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_values_that_yaml_itself_cannot_make(value: str, tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(f"name: a\nseed: {value}\n", "utf-8")
    for reader in (read_yaml, read_sweep):
        with pytest.raises(ConfigError, match=r"r\.yaml: ") as caught:
            reader(path)
        assert len(str(caught.value)) < 1000
    said = _problems(f"seed={value}", "epochs=0")
    assert "--set 'seed=" in said
    assert "epochs: must be 1 or more" in said  # all problems at once
    assert len(said) < 1500


def test_an_alias_bomb_gives_a_short_message() -> None:
    bomb = [1] * 10
    for _ in range(6):
        bomb = [bomb] * 10  # type: ignore[list-item]
    assert len(_problems(seed=bomb)) < 1000


def test_names_of_shipped_recipes() -> None:
    assert find_recipe("starter-static").is_file()
    with pytest.raises(ConfigError, match="did you mean starter-static"):
        find_recipe("starter-statc")
    with pytest.raises(ConfigError, match="no such file"):
        find_recipe("missing.yaml")


@pytest.mark.parametrize("path", shipped_recipes(), ids=lambda p: p.stem)
def test_shipped_recipes_are_valid_and_say_what_they_are(path: Path) -> None:
    plan = load_plan(path)
    assert plan.recipe.name == path.stem
    assert head_line(path)


@pytest.mark.parametrize(
    "name", ["flow-grpo", "flow-grpo-fast", "mix-grpo", "grpo-guard", "tempflow", "awm"]
)
def test_method_recipes_train_what_the_baseline_trains(name: str) -> None:
    """The table of methods compares methods, not adapters or numbers of steps."""
    static, plan = (load_plan(find_recipe(f"starter-{n}")) for n in ("static", name))
    assert plan.policy_config.lora == static.policy_config.lora
    # The policy gradients fall apart at the others' rate: docs/methods.md.
    rate = {"awm": 2.5e-3, "flow-grpo-fast": 1e-3}.get(name, 1.5e-3)
    assert plan.recipe.optimiser == replace(static.recipe.optimiser, learning_rate=rate)
    assert plan.recipe.steps_per_epoch == static.recipe.steps_per_epoch
