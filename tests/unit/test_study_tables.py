"""Tables of the studies on the starter: pooled gains, markers of a page, parts done once."""

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import conflict
import credit_study
import methods_table
import numpy as np
import pytest
import rebrl_study
from peak import peak_mb
from starter_runs import Results, gain_cell, pooled, write_between

from recast_train.config import load_plan
from recast_train.recipe_files import find_recipe

BASE = {"composition": [0.5, 0.5, 0.5, 0.5], "ocr": [0.0, 0.5, None, 1.0], "finish": [1.0] * 4}


def _moved(by: float, **changes: list[float | None]) -> dict[str, list[float | None]]:
    moved = {k: [None if v is None else v + by for v in values] for k, values in BASE.items()}
    return {**moved, **changes}


def test_seeds_are_pooled_by_prompt() -> None:
    before = [0.0, 0.0, 0.0, None]
    found = pooled([[1.0, 2.0, 3.0, 9.0], [3.0, 4.0, None, 9.0]], before)
    # Prompts 0 and 1 alone were scored each time: gains 1, 2 and 3, 4.
    assert found == (2.5, pytest.approx(0.5), 1.5, 3.5, 2, 4)
    assert gain_cell(found, 2) == "+2.500 ± 0.500 [+1.500, +3.500] (2/4)"


def test_one_seed_has_the_paired_standard_error_and_no_range() -> None:
    gains = np.random.default_rng(0).normal(size=20)
    found = pooled([gains.tolist()], [0.0] * 20)
    assert found.error == pytest.approx(gains.std(ddof=1) / np.sqrt(20))
    assert found.low == found.high == pytest.approx(gains.mean())
    assert "[" not in gain_cell(found, 1)


def test_more_seeds_that_agree_make_no_smaller_error() -> None:
    gains = [0.1, 0.4, -0.2]
    assert pooled([gains] * 3, [0.0] * 3).error == pytest.approx(pooled([gains], [0.0] * 3).error)


def test_nothing_scored_is_no_gain_of_zero() -> None:
    assert gain_cell(pooled([[None, 1.0]], [0.0, None]), 1) == "not scored (0/2)"


def _args(**values: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"judges": ()} | values)


def test_the_methods_table_pools_seeds_and_takes_medians_of_costs() -> None:
    done: dict[str, Any] = {"base": {"scores": BASE}}
    for seed, (gain, seconds) in enumerate([(0.1, 5.0), (0.2, 90.0), (0.3, 7.0)], 1):
        cost = {"pictures": 1152, "cpu_seconds": seconds, "peak_mb": 800.0 + seed}
        done[f"starter-awm|{seed}"] = {"cost": cost, "scores": _moved(gain)}
    text = methods_table.table(
        done, _args(recipes=["starter-awm"], seeds=[1, 2, 3], judges=("ocr",))
    )
    cell = "+0.200 ± 0.000 [+0.100, +0.300]"
    row = f"| starter-awm | {cell} | {cell} | {cell} | {cell} (3/4) | 1152 | 7 | 802 |"
    assert text.splitlines()[-1] == row
    assert "| base | 0.750 | 0.500 | 1.000 | 0.500 | | | |" in text
    assert "3 seeds" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert widths == {9}


def test_all_methods_are_compared_on_one_task_within_the_pictures_of_their_recipes() -> None:
    for recipe in methods_table.RECIPES:
        cut = methods_table.CUT if recipe in methods_table.LONGER else ()
        plan = load_plan(find_recipe(recipe), [*methods_table.SAME, *cut]).recipe
        shipped = load_plan(find_recipe(recipe)).recipe
        assert tuple(plan.rewards) == methods_table.REWARDS
        assert recipe in methods_table.LONGER or replace(shipped, micro_batch=32) == plan


def test_the_credit_table_compares_with_static_seed_by_seed() -> None:
    base = BASE | {"alignment": [0.25] * 4}
    done: dict[str, Any] = {"base": {"scores": base}}
    static, recast = {1: 0.1, 2: 0.3}, {1: 0.2, 2: 0.5}
    for name in credit_study.CREDITS:
        for seed in (1, 2):
            by = static[seed] if name == "static" else recast[seed]
            moved = {k: [None if v is None else v + by for v in row] for k, row in base.items()}
            done[f"{name}|{seed}"] = {"scores": moved}
    lines = credit_study.table(done, _args(seeds=[1, 2])).splitlines()
    gain = "+0.200 ± 0.000 [+0.100, +0.300]"
    assert f"| static | {gain} (3/4) | {gain} | {gain} (3/4) | {gain} | {gain} |" in lines
    # Where the mean of the rewards is not known (no ocr), neither is the difference of two.
    pair = "+0.150 ± 0.000 [+0.100, +0.200]"
    row = f"| reversed - static | {pair} (3/4) | {pair} | {pair} (3/4) | {pair} | {pair} |"
    assert lines[-1] == row


def test_the_conflict_table_has_a_row_a_kind_and_seed() -> None:
    cosines = {"worst_cosine": [-1.0, -1.0, 0.3, 0.2], "worst_cosine_before": [0.0, 0.0, 0.1, 0.4]}
    none: dict[str, list[float]] = {"worst_cosine": [], "worst_cosine_before": []}
    done: dict[str, Any] = {"base": {"scores": BASE}}
    for seed in (1, 2):
        done[f"weighted sum|{seed}"] = {"scores": _moved(-0.1), "records": {"cosines": none}}
        done[f"MARBLE|{seed}"] = {"scores": _moved(0.1), "records": {"cosines": cosines}}
    lines = conflict.table(done, _args(seeds=[1, 2])).splitlines()
    assert len(lines) == 2 + 1 + 4
    assert "| weighted sum | 2 | -0.100 ± 0.000 |" in lines[4]
    assert lines[5].startswith("| MARBLE | 1 | +0.100 ± 0.000 | +0.100 ± 0.000 (3/4) |")
    assert (
        "+0.200 (coefficients in use: +0.100)" in lines[5]
    )  # the first two refreshes are left out


def test_a_table_goes_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<a>\nold\n<b>\nafter\n", "utf-8")
    for _ in range(2):
        write_between("new\n", page, "<a>", "<b>")
        assert page.read_text("utf-8") == "before\n<a>\nnew\n<b>\nafter\n"


@pytest.mark.parametrize("text", ["no marker", "<a> only", "<b> then <a>", "<a><b><a><b>"])
def test_a_page_without_its_markers_is_left_alone(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"page\.md: must have <a> and then <b>"):
        write_between("new\n", page, "<a>", "<b>")
    assert page.read_text("utf-8") == text


def test_a_finished_part_is_not_done_again(tmp_path: Path) -> None:
    path, made = tmp_path / "study.json", list[str]()

    def make() -> dict[str, Any]:
        made.append("once")
        return {"scores": {"ocr": [0.5, None]}}

    first = Results(path).get("awm|1", make)
    again = Results(path)
    assert again.get("awm|1", make) == first == {"scores": {"ocr": [0.5, None]}}
    again.get("awm|2", make)
    assert made == ["once", "once"]
    assert list(Results(path).found) == ["awm|1", "awm|2"]


def _rebrl_args() -> argparse.Namespace:
    return _args(rewards=["tidy"], variants=["unigrpo", "rebrl (both)"], seeds=[1, 2])


def _rebrl_runs() -> dict[str, Any]:
    scores = {"tidy": 0.5, "kl": 0.1, **{j: 0.25 for j in rebrl_study.JUDGES if j != "tidy"}}
    done: dict[str, Any] = {"tidy|base": scores}
    prompts = np.array([0.9, 0.1, 0.5, 0.3])  # an epoch's prompts move the reward most
    for seed in (1, 2):
        done[f"tidy|untrained|{seed}"] = {"curve": prompts.tolist()}
        for name, slope in (("unigrpo", 0.1), ("rebrl (both)", 0.2)):
            curve = (prompts + slope * np.arange(4)).tolist()
            final = 0.5 + slope + 0.01 * seed
            done[f"tidy|{name}|{seed}"] = scores | {"tidy": final, "curve": curve}
    return done


def test_the_rebrl_table_compares_with_unigrpo_seed_by_seed_and_takes_prompts_out() -> None:
    text = rebrl_study.table(_rebrl_runs(), _rebrl_args())
    # Smoothed, slope .1 ends at .15, which slope .2 reaches as .2 at the third epoch.
    assert "| rebrl (both) | 0.715 [0.710, 0.720] | +0.100, +0.100 | 0.100 | 3 |" in text
    assert "| unigrpo | 0.615 [0.610, 0.620] |  | 0.100 | 4 |" in text
    widths = {line.count("|") for line in text.splitlines() if line}
    assert widths == {10}


def test_a_goal_counts_as_reached_only_where_the_gain_stays() -> None:
    assert rebrl_study.reach(np.array([0.0, 2.0, 0.5, 1.0, 1.5]), 1.0) == "4"
    assert rebrl_study.reach(np.array([1.0, 2.0]), 1.0) == "1"
    assert rebrl_study.reach(np.array([2.0, 0.0]), 1.0) == "not reached"


def test_a_peak_is_the_process_s_own_and_not_its_parent_s(tmp_path: Path) -> None:
    held = np.ones(200 * 2**20, dtype=np.uint8)  # 200 MB here, which a child must not inherit
    copy = tmp_path / "status"
    code = f"open({str(copy)!r}, 'w').write(open('/proc/self/status').read())"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert 1 < peak_mb(copy) < 100 < 200 <= held.nbytes / 2**20 <= peak_mb()


def test_a_status_without_a_peak_is_said(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name: x\n")
    with pytest.raises(ValueError, match="no VmHWM"):
        peak_mb(tmp_path / "status")
