"""A sweep is the product of its axes, and is checked whole before it starts."""

from pathlib import Path

import pytest

from recast_eval.errors import ConfigError
from recast_train.sweep import Sweep, plan_runs, read_sweep


def test_runs_are_the_product_and_carry_budget_and_seed() -> None:
    sweep = Sweep(
        name="s",
        base="starter-static",
        variants={"static": {}, "recast": {"credit.kind": "recast-online"}},
        budgets=({"ocr": 1, "finish": 1}, {"ocr": 2, "finish": 1}),
        seeds=(1, 2, 3),
    )
    runs = plan_runs(sweep)
    assert len({r.name for r in runs}) == len(runs) == 12
    assert runs[1].name == "recast--ocr1-finish1--seed1"
    assert {"rewards.ocr.budget=1", "credit.kind=recast-online", "seed=1"} <= {*runs[1].overrides}


def test_every_run_is_checked_and_all_problems_are_told(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "{name: s, base: starter-static, seeds: [1], variants: {a: {epcohs: 2}, b: {seed: x}}}",
        "utf-8",
    )
    with pytest.raises(ConfigError) as caught:
        read_sweep(file)
    assert any("run a--seed1" in p and "epcohs" in p for p in caught.value.problems)


@pytest.mark.parametrize("text", ["{name: s}", "[]", "{name: s, base: r, colour: 1}", "{"])
def test_what_is_no_sweep_is_refused_with_its_file(text: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=r"broken\.yaml"):
        read_sweep(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seeds: [1, 1]", "run base--seed1 is planned 2 times"),
        (
            "budgets: [{ocr: .3333333, finish: 1}, {ocr: .33333334, finish: 1}]",
            "run base--ocr0.333333-finish1--seed1 is planned 2 times",
        ),
        ("variants: {A: {}, a: {epochs: 2}}", "run a--seed1 is planned 2 times"),
        ("variants: {a: {epochs: 3}, a: {epochs: 4}}", "'a' is given twice"),
        ("set: {epochs: 3, epochs: 4}", "'epochs' is given twice"),
        ("variants: {../up: {}}", "'../up--seed1' is a folder's name"),
        ("variants: {.hidden: {}}", "'.hidden--seed1' is a folder's name"),
        ("seeds: [yes]", "seeds.0: must be a number"),
        ("budgets: [{ocr: yes}]", "budgets.0.ocr: must be a number"),
        ("seeds: []", "plans no run"),
        ("variants: {}", "plans no run"),
    ],
)
def test_every_run_gets_a_folder_of_its_own(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(f"name: s\nbase: starter-static\n{text}\n", "utf-8")
    with pytest.raises(ConfigError) as caught:
        read_sweep(file)
    assert any("s.yaml" in p and said in p for p in caught.value.problems)


def test_a_sweep_in_another_encoding_is_refused_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_bytes("name: s\nbase: starter-static # \u00e9\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"s\.yaml"):
        read_sweep(file)
