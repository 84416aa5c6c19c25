"""Parts of the report that can be checked without building one."""

import base64
import csv
import io
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from recast_eval.errors import DataError
from recast_eval.judging.records import AxisOutcome, VerdictRecord
from recast_eval.plots import Table
from recast_eval.plots.lines import lines_info
from recast_eval.records import Failed, Manifest, MetricRecord, Scored, ScoreRecord
from recast_eval.reporting.battles import battle_table
from recast_eval.reporting.blocks import (
    Cell,
    FigureBlock,
    Maker,
    NoteBlock,
    interval_cell,
    minus,
    number_text,
    p_text,
    pair_name,
    with_interval,
    words,
)
from recast_eval.reporting.blocks import Section as Part
from recast_eval.reporting.compare import Change, manifest_changes, prompt_changes
from recast_eval.reporting.distrust import doubts, recipe_differences
from recast_eval.reporting.facts import find_focus, find_reference, gather
from recast_eval.reporting.inputs import Evaluation, Inputs, read_inputs
from recast_eval.reporting.render import clean, csv_link, data_block
from recast_eval.reporting.scores import aggregate, all_pairs, score_table
from recast_eval.reporting.sections.diagnostics import families
from recast_eval.reporting.sections.provenance import flatten
from recast_eval.reporting.sections.training import steady_or_figure, training_minutes
from recast_eval.reporting.summary import Answer, Summary
from recast_eval.reporting.sweeps import Match
from recast_eval.stats import benjamini_hochberg, holm, matched_runs


def score(model: str, prompt: int, value: float | None, scorer: str = "s", role: str = "heldout"):  # noqa: ANN201
    outcome = Failed(reason="x") if value is None else Scored(value=value)
    return ScoreRecord(
        model=model,
        prompt_id=str(prompt),
        sample=0,
        image="0",
        scorer=scorer,
        scorer_digest="d",
        role=role,  # type: ignore[arg-type]
        outcome=outcome,
    )


def verdict(prompt: int, score_a: float | None, category: str | None = None) -> VerdictRecord:
    if score_a is None:
        outcome = AxisOutcome(state="unscored", reason="refused")
    elif score_a == 0.5:
        outcome = AxisOutcome(state="flip", score_a=0.5)
    else:
        outcome = AxisOutcome(state="win", winner="a" if score_a else "b", score_a=score_a)
    return VerdictRecord(
        judge="j",
        judge_digest="d",
        prompt_id=str(prompt),
        prompt="p",
        category=category,
        sample=0,
        model_a="a",
        model_b="b",
        image_a=None,
        image_b=None,
        axes={"overall": outcome},
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.12345, "0.123"), (-2.0, "\u22122"), (math.nan, "no data"), (None, "no data")],
)
def test_numbers_are_written_as_people_do(value: float | None, text: str) -> None:
    assert number_text(value) == text


def test_an_interval_has_the_decimals_that_its_width_earns() -> None:
    assert with_interval(0.0, -1e308, 1e308).startswith("0.00 [")
    assert with_interval(0.5, 0.4634, 0.5371) == "0.500 [0.463, 0.537]"  # width .07: 3 decimals
    assert with_interval(57.2, 53.1, 61.2) == "57.2 [53.1, 61.2]"
    assert with_interval(1.0, 1.0, 1.0) == "1.00 [1.00, 1.00]"


def test_p_values_are_never_zero() -> None:
    assert [p_text(p) for p in (1e-9, 0.0312, 1.0)] == ["< .001", ".031", "1"]


def test_two_long_names_of_a_pair_stay_apart() -> None:
    assert pair_name(("x" * 40, "y" * 40), 5) == "xxxx\u2026 / yyyy\u2026"


def test_control_characters_do_not_reach_the_page() -> None:
    assert clean("a\x00b\x07c\r\nd\ud800") == "abc d"


def test_no_csv_cell_can_start_a_formula() -> None:
    table = Table(("=x", "n"), (("=1+1", 1.5), ("@a", None), ("-b", -2.0)))
    text = base64.b64decode(csv_link(table).split(",")[1]).decode("utf-8-sig")
    rows = list(csv.reader(io.StringIO(text)))
    assert rows == [["'=x", "n"], ["'=1+1", "1.5"], ["'@a", ""], ["'-b", "-2.0"]]


def test_a_data_block_is_strict_json_that_cannot_close_its_tag() -> None:
    evil = "</script><script>alert(1)</script><!--"
    table = Maker("c").table(evil, evil, [evil], [[words(evil)]])
    summary = Summary(Answer("compared", evil, evil), (), ())
    text = data_block(evil, summary, [Part("k", evil, evil, (table,))])
    assert "<" not in text
    assert ">" not in text
    found = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert found["tables"][table.key]["rows"] == [[evil]]


def test_a_mean_stands_beside_its_coverage() -> None:
    records = [score("a", 0, 1.0), score("a", 1, 3.0), score("a", 2, None)]
    mean = score_table(records, ["a"], []).means["s", "a"]
    assert (mean.estimate, mean.n_scored, mean.n_total) == (2.0, 2, 3)


def test_a_model_without_scores_has_no_mean_and_no_row_vanishes() -> None:
    table = score_table([score("a", 0, 1.0)], ["a", "b"], [("b", "a")])
    assert table.means["s", "b"].estimate is None
    assert table.differences == ()


def test_a_difference_uses_pairs_that_both_scored() -> None:
    records = [score("a", i, v) for i, v in enumerate((1.0, 2.0, None))]
    records += [score("b", i, v) for i, v in enumerate((0.0, 1.5, 9.0))]
    (found,) = score_table(records, ["b", "a"], [("a", "b")]).differences
    assert found.estimate == 0.75
    assert found.n_pairs == 2


def test_prompt_ids_that_look_like_numbers_stay_apart() -> None:
    records = [score("a", 1, 1.0), score("a", 1, 2.0).model_copy(update={"prompt_id": "01"})]
    assert score_table(records, ["a"], []).means["s", "a"].n_total == 2


@pytest.mark.parametrize(
    ("prompts", "rate"),
    [
        ([[1.0, 0.5]] * 40 + [[0.0, 0.0]] * 21, 0.492),  # ahead on 40 of 61 prompts
        ([[1.0] * 5 + [0.0] * 3] * 30 + [[0.0] * 8] * 10, 0.469),  # on 30 of 40
        ([[1.0] * 5 + [0.0] * 3] * 30 + [[0.0] * 8] * 7, 0.507),  # and the rate says so too
    ],
)
def test_a_verdict_is_about_the_rate_that_is_shown(prompts: list[list[float]], rate: float) -> None:
    scores = [(p, score) for p, found in enumerate(prompts) for score in found]
    verdicts = [
        verdict(p, score).model_copy(update={"sample": n}) for n, (p, score) in enumerate(scores)
    ]
    (battle,) = battle_table(verdicts, [("a", "b")], None).whole
    assert battle.rate is not None
    assert battle.rate.estimate == pytest.approx(rate, abs=1e-3)
    assert battle.rate.low < 0.5 < battle.rate.high
    assert battle.p > 0.05
    assert battle.verdict == "open"


@pytest.mark.parametrize(("lost", "verdict"), [(-0.1, "better"), (-2.0, "open")])
def test_runs_and_their_mean_must_point_one_way(lost: float, verdict: str) -> None:
    gaps = dict(enumerate([0.1] * 10 + [lost]))  # ten runs of eleven are won, p .012
    found = matched_runs(gaps, dict.fromkeys(gaps, 0.0))
    assert Match("new", "static", "score", found, found.p).verdict == verdict


def test_states_of_a_battle_add_up() -> None:
    values = (1.0, 1.0, 0.0, 0.5, None)
    (battle,) = battle_table(
        [verdict(i, v) for i, v in enumerate(values)], [("b", "a")], None
    ).whole
    assert battle.states == {
        "first wins": 1,
        "second wins": 2,
        "tie": 0,
        "flip": 1,
        "unscored": 1,
    }
    assert (battle.n_scored, battle.n_total) == (4, 5)
    assert battle.rate is not None
    assert battle.rate.estimate == (1 + 0.5) / 4
    assert (battle.worst.low, battle.worst.high) == (1.5 / 5, 2.5 / 5)


def test_a_category_without_verdicts_keeps_its_row() -> None:
    found = battle_table([verdict(0, 1.0, "x")], [("a", "b")], ("a", "b"), ["x", "empty"])
    assert [(b.category, b.n_total) for b in found.by_category] == [("x", 1), ("empty", 0)]
    assert found.by_category[1].rate is None


def test_a_prompt_that_a_scorer_does_not_read_is_no_gap_in_its_coverage() -> None:
    asked = score("a", 0, 1.0)
    other = asked.model_copy(
        update={"prompt_id": "shapes", "outcome": Failed(reason="not_applicable")}
    )
    failed = other.model_copy(update={"outcome": Failed(reason="engine")})
    assert score_table([asked, other], ["a"], []).means["s", "a"].n_total == 1
    assert score_table([asked, failed], ["a"], []).means["s", "a"].n_total == 2


def test_nothing_scored_is_not_a_half() -> None:
    (battle,) = battle_table([verdict(0, None)], [("a", "b")], None).whole
    assert battle.rate is None
    assert battle.verdict == "open"


def test_the_focus_is_recast_against_static() -> None:
    assert find_focus(["base", "static", "recast"]) == ("recast", "static")
    assert find_focus(["m1", "m2", "m3"]) == ("m3", "m1")
    assert find_focus(["alone"]) is None
    assert find_reference(["x", "my-base"]) == "my-base"


def test_many_models_are_shown_against_the_reference() -> None:
    models = [f"m{i}" for i in range(6)]
    pairs = all_pairs(models, ("m5", "m4"))
    assert pairs[0] == ("m5", "m4")
    assert set(pairs[1:]) == {(m, "m0") for m in models[1:]}


def test_recipes_may_differ_in_their_credit_alone() -> None:
    a = {"credit": {"kind": "static"}, "method": {"kind": "nft", "beta": 1}, "seed": 0}
    b = {"credit": {"kind": "recast"}, "method": {"kind": "nft", "beta": 2}, "seed": 0}
    assert recipe_differences(a, b) == {"method.beta"}


def test_metrics_become_lines_and_profiles() -> None:
    names = ["aggregator/cosine/0/0", "aggregator/cosine/0/1", "aggregator/worst_cosine"]
    lines, profiles = families([*names, "rebrl/token_weight_00", "rebrl/token_weight_01"])
    assert lines == {
        "aggregator/cosine": ["aggregator/cosine/0/1"],
        "aggregator": ["aggregator/worst_cosine"],
    }
    assert profiles == {
        "rebrl/token_weight": {0: "rebrl/token_weight_00", 1: "rebrl/token_weight_01"}
    }


def test_json_is_flattened_in_order() -> None:
    assert flatten({"a": [1, {"b": None}], "c": "d"}) == [("a.0", 1), ("a.1.b", None), ("c", "d")]


def test_manifests_that_differ_say_in_what() -> None:
    def manifest(seed: int, version: str) -> Manifest:
        return Manifest(
            command=["x"], versions={"torch": version}, hardware={}, seeds={"images": seed}
        )

    found = manifest_changes(manifest(0, "1"), manifest(1, "2"))
    assert found == (
        Change("seeds.images", "0", "1", True),
        Change("versions.torch", "1", "2", False),
    )
    assert manifest_changes(manifest(0, "1"), manifest(0, "1")) == ()


def test_training_rewards_are_joined_by_budget_and_one_failure_fails_the_sum() -> None:
    first, second = (score("a", 0, v, s, "train") for v, s in ((1.0, "x"), (0.0, "y")))
    held = score("a", 0, 9.0, "judge")
    (joined,) = aggregate([first, second, held], {"x": 3.0, "y": 1.0})
    assert joined.outcome == Scored(value=0.75)
    skipped = second.model_copy(update={"outcome": Failed(reason="not_applicable")})
    assert aggregate([first, skipped], {"x": 3.0, "y": 1.0})[0].outcome == Scored(value=1.0)
    (failed,) = aggregate([first, score("a", 0, None, "y", "train")], {})
    assert failed.outcome == Failed(reason="y: x")


def test_a_relative_of_a_reward_has_no_say_in_what_was_optimised() -> None:
    records = [score("a", 1, 0.2, "ocr", "train"), score("a", 1, 0.6, "finish", "train")]
    budgets = {"ocr": 0.25, "finish": 0.75}
    extra = score("a", 1, 1.0, "ocr-scene", "train")
    assert aggregate([*records, extra], budgets) == aggregate(records, budgets)
    assert aggregate([extra], budgets) == []
    assert len(aggregate([extra], {})) == 1


def test_images_that_one_model_lacks_are_no_failures() -> None:
    few, many = range(6), range(40)
    records = [*(score("a", i, 0.5) for i in few), *(score("b", i, 0.4 + i / 100) for i in many)]
    table = score_table(records, ["a", "b"], [("b", "a")])
    assert table.differences[0].coverage_p == 1.0
    assert table.differences[0].n_prompts == 6
    assert table.images() == {"a": 6, "b": 40}
    failing = [*records, *(score("a", i, None) for i in range(6, 30))]
    assert score_table(failing, ["a", "b"], [("b", "a")]).differences[0].coverage_p < 0.05


def test_another_sampler_is_grave_and_another_wall_clock_is_not() -> None:
    def manifest(steps: int, seconds: float) -> Manifest:
        sampler = {"steps": steps, "guidance": 1.0}
        facts = {"models": {"base.v2": {"sampler": sampler, "seconds": seconds}}}
        return Manifest(command=[], versions={}, hardware={}, facts=facts)

    changes = manifest_changes(manifest(10, 1.0), manifest(50, 2.0))
    assert [(c.fact, c.grave) for c in changes] == [
        ("facts.models.base.v2.sampler.steps", True),
        ("facts.models.base.v2.seconds", False),
    ]


def test_pictures_of_other_sizes_are_a_grave_doubt(tmp_path: Path) -> None:
    def evaluation(**sizes: dict[str, int]) -> Evaluation:
        facts = {"models": {name: {"sizes": found} for name, found in sizes.items()}}
        manifest = Manifest(command=[], versions={}, hardware={}, facts=facts)
        scores = tuple(score(name, i, i / 9) for name in sizes for i in range(9))
        return Evaluation("one", tmp_path, manifest, scores, (), {})

    def said(one: Evaluation) -> list[str]:
        found = doubts(gather(Inputs((), (one,))))
        return [doubt.text for doubt in found if doubt.grave and "size" in doubt.text]

    assert said(evaluation(a={"64x64": 9}, b={"64x64": 9})) == []
    (text,) = said(evaluation(a={"64x64": 9}, b={"128x128": 8, "64x64": 1}))
    assert "a 64x64; b 128x128, 64x64" in text


def test_prompts_that_scores_alone_name_are_shared(tmp_path: Path) -> None:
    one = Evaluation("one", tmp_path, None, (score("a", 1, 0.5), score("a", 2, 0.5)), (), {})
    two = Evaluation("two", tmp_path, None, (score("a", 2, 0.6), score("a", 3, 0.5)), (), {})
    assert prompt_changes(one, two) == (0, 1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"budgets": [0.2, 0.3, 0.5]}, "budgets must be 2 numbers"),
        ({"column_mass": [1.0]}, "column_mass must be 2 numbers"),
        ({"reliability": [0.1]}, "reliability must be 2 numbers"),
        ({"rewards": [], "budgets": [], "weights": []}, "two noise levels or more"),
        ({"sigmas": [1.0], "weights": [[], []]}, "two noise levels or more"),
    ],
)
def test_a_credit_whose_parts_do_not_fit_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    record = {"schema_version": 1, "epoch": 0, "kind": "recast", "rewards": ["a", "b"]}
    record |= {"budgets": [0.5, 0.5], "sigmas": [1, 0.5, 0], "weights": [[0.3, 0.2], [0.2, 0.3]]}
    file = tmp_path / "credit.jsonl"
    file.write_text(json.dumps(record | changes) + "\n", "utf-8")
    with pytest.raises(DataError, match=f"credit.jsonl.*{said}"):
        read_inputs([tmp_path])


@pytest.mark.parametrize(
    "text",
    [
        "seed: 2026-13-45",
        "x: !!timestamp abc",
        "a: &a\n  x: *a\n",
        "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
        + "".join(f"{c}: &{c} [{', '.join([f'*{p}'] * 10)}]\n" for p, c in pairwise("abcdefgh")),
    ],
    ids=["month", "tag", "itself", "bomb"],
)
def test_a_recipe_that_is_no_small_tree_is_left_out_and_said(tmp_path: Path, text: str) -> None:
    metric = MetricRecord(step=1, epoch=0, seconds=1.0, values={})
    (tmp_path / "metrics.jsonl").write_text(metric.model_dump_json() + "\n", "utf-8")
    (tmp_path / "recipe.yaml").write_text(text, "utf-8")
    found = read_inputs([tmp_path])
    assert found.runs[0].recipe == {}
    assert "recipe.yaml" in found.notes[0]


def test_no_number_is_minus_zero_and_columns_stay_equally_exact() -> None:
    assert with_interval(-0.004, -0.06, 0.09) == "0.00 [\u22120.06, 0.09]"
    assert [number_text(v) for v in (0.65, 0.646, 48.0, -0.0)] == ["0.650", "0.646", "48", "0"]
    assert minus("-0.17 [-0.42, 0.32]") == "\u22120.17 [\u22120.42, 0.32]"


def test_a_csv_holds_the_ends_of_intervals() -> None:
    row = [words("a"), interval_cell(0.5, 0.4, 0.6)]
    block = Maker("c").table("t", "r", ["model", "mean"], [row, [words("b"), Cell("no data")]])
    assert block.table.columns == ("model", "mean", "mean: low", "mean: high")
    assert block.table.rows == (("a", 0.5, 0.4, 0.6), ("b", "no data", None, None))
    assert block.numeric == (False, True)


def test_a_figure_says_what_its_band_is() -> None:
    info = lines_info({"a": ([0, 1], [1, 2])}, x_label="x", y_label="y", band="two errors")
    assert Maker("c").figure("gains", info).read.endswith("Shaded: two errors.")


def test_categories_are_explored_with_the_share_of_false_alarms() -> None:
    verdicts = [
        verdict(10 * category + i, float(i >= lost), str(category))
        for category, lost in enumerate((0, 1))
        for i in range(9)
    ]
    found = battle_table(verdicts, [("a", "b")], ("a", "b")).by_category
    assert [b.p_adjusted for b in found] == pytest.approx(benjamini_hochberg([b.p for b in found]))
    assert found[0].p_adjusted < found[1].p_adjusted < 0.05
    whole = [b.p for b in battle_table(verdicts, [("a", "b")], None).whole]
    assert list(holm(whole)) == whole  # a single comparison needs no adjustment


def test_scorers_of_one_side_only_take_nothing_from_what_is_shared() -> None:
    def manifest(**digests: str) -> Manifest:
        return Manifest(command=[], versions={}, hardware={}, seeds={}, digests=digests)

    changes = manifest_changes(
        manifest(**{"judge/j": "1", "scorer/s": "1"}), manifest(**{"scorer/s": "2"})
    )
    assert [(c.fact, c.grave, c.shared) for c in changes] == [
        ("digests.scorer/s", True, True),
        ("j", False, False),
    ]


def test_rebrl_scalars_have_figures_of_their_own() -> None:
    lines, profiles = families(["rebrl/kl", "rebrl/clip_fraction", "rebrl/clip_fraction_00"])
    assert lines == {"rebrl/kl": ["rebrl/kl"], "rebrl/clip_fraction": ["rebrl/clip_fraction"]}
    assert profiles == {"rebrl/clip_fraction": {0: "rebrl/clip_fraction_00"}}


def test_what_never_moved_is_a_sentence_and_no_picture() -> None:
    flat, moving = {"a": ([1.0, 2.0], [0.0, 0.0])}, {"a": ([1.0, 2.0], [0.0, 1.0])}
    said = steady_or_figure(flat, "clip_fraction", "Clipped", "r", Maker("c"), "")
    assert isinstance(said, NoteBlock)
    assert said.text == "Clipped (clip_fraction): 0 at every step."
    drawn = steady_or_figure(moving, "clip_fraction", "Clipped", "r", Maker("c"), "")
    assert isinstance(drawn, FigureBlock)


def test_training_minutes_count_an_epoch_once_however_many_steps_it_has() -> None:
    steps = [(0, 20.0), (0, 40.0), (0, 60.0), (1, 30.0), (1, 120.0)]
    metrics = [
        MetricRecord(step=i, epoch=epoch, seconds=seconds, values={})
        for i, (epoch, seconds) in enumerate(steps)
    ]
    assert training_minutes(metrics) == pytest.approx(3.0)
