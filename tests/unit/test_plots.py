"""The numbers behind the figures, worked out by hand; the ink only has to go on."""

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from recast_eval import plots
from recast_eval.plots.base import PAPER, fit
from recast_eval.plots.credit_drift import credit_drift_info
from recast_eval.plots.credit_weights import CreditWeights, credit_weights_info
from recast_eval.plots.intervals import Row, intervals_info
from recast_eval.plots.lines import Lines, lines_info, lines_table, running_mean
from recast_eval.plots.scatter import Point, label_places, pareto_front, points_info
from recast_eval.plots.shares import shares_info

NAN = float("nan")


def weights(budgets: tuple[float, ...] = (0.5, 0.5)) -> CreditWeights:
    one = np.array([[4, 2.5, 1], [1, 2.5, 4]]) / 15  # rows sum to 1/2, columns to 1/3
    return credit_weights_info(["early", "late"], [1, 0.6, 0.3, 0], one[None], budgets)


def test_a_multiplier_is_the_weight_over_its_static_share() -> None:
    # static share 1/2 * 1/3 = 1/6; 4/15 over 1/6 is 1.6
    np.testing.assert_allclose(weights().multiplier, [[1.6, 1.0, 0.4], [0.4, 1.0, 1.6]])


def test_multipliers_of_a_reward_average_one() -> None:
    np.testing.assert_allclose(weights().multiplier.mean(axis=1), 1.0)


def test_spread_is_the_sample_deviation_over_seeds_and_missing_for_one() -> None:
    two = np.array([[[0.5, 0.5]], [[0.25, 0.75]]])
    info = credit_weights_info(["only"], [1, 0.5, 0], two, [1.0])
    np.testing.assert_allclose(info.multiplier, [[0.75, 1.25]])
    np.testing.assert_allclose(info.spread, [[0.5 / 2**0.5, 0.5 / 2**0.5]])
    assert np.isnan(weights().spread).all()


def test_a_budget_of_zero_has_no_multiplier() -> None:
    info = credit_weights_info(["none", "all"], [1, 0], np.array([[[0.0], [1.0]]]), [0.0, 1.0])
    assert np.isnan(info.multiplier[0]).all()
    assert info.multiplier[1, 0] == 1.0


def test_weights_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(S, 2, T\)"):
        credit_weights_info(["a", "b"], [1, 0], np.ones((1, 3, 1)), [0.5, 0.5])


def test_every_missing_cell_is_covered_and_never_enters_the_range() -> None:
    info = weights()
    info.multiplier[0, 1] = NAN
    axes = Figure().add_subplot()
    plots.PLOTS.load("credit-weights").draw(axes, info)
    hatched = [p for p in axes.patches if isinstance(p, Rectangle) and p.get_hatch()]
    assert [(p.get_x(), p.get_y()) for p in hatched] == [(1.0, 0.0)]
    assert axes.collections[0].norm.vmax == 2.0
    assert plots.PLOTS.load("credit-weights").table(info).rows[1][3] is None


@pytest.mark.parametrize("value", [NAN, 1.0, 1e6])
def test_a_heat_map_of_nothing_of_one_value_and_of_an_outlier_can_be_drawn(value: float) -> None:
    info = weights()._replace(multiplier=np.full((2, 3), value))
    assert "<svg" in plots.svg(plots.PLOTS.load("credit-weights"), info, key="k")


def test_drift_is_in_units_of_the_static_share() -> None:
    info = credit_drift_info("r", [0, 5], [1, 0.5, 0], [[0.25, 0.25], [0.4, 0.1]], [0.5, 0.5])
    np.testing.assert_allclose(info.multiplier, [[1, 1], [1.6, 0.4]])


def test_a_band_is_the_multiplier_times_the_error() -> None:
    info = lines_info(
        {"a": ([0, 1], [10.0, 20.0])},
        x_label="x",
        y_label="y",
        errors={"a": [1.0, 2.0]},
        multiplier=3.0,
    )
    assert info.lines[0].low == (7.0, 14.0)
    assert info.lines[0].high == (13.0, 26.0)


def test_a_series_as_long_as_its_x_or_an_error() -> None:
    with pytest.raises(ValueError, match="2 x values, 1 y"):
        lines_info({"a": ([0, 1], [1.0])}, x_label="x", y_label="y")


def test_the_front_holds_what_nothing_beats() -> None:
    points = [Point("a", 0, 3), Point("b", 1, 1), Point("c", 2, 2), Point("d", 2, 2)]
    points += [Point("e", 3, 0), Point("f", NAN, 9)]
    # b is beaten by c; c and d are equal, so both stay; NaN is never on it
    assert [points[i].name for i in pareto_front(points)] == ["a", "c", "d", "e"]


def test_an_interval_holds_its_estimate() -> None:
    with pytest.raises(ValueError, match="low <= estimate <= high"):
        intervals_info([Row("a", 1.0, 2.0, 3.0)], x_label="x")


def test_shares_keep_amounts_and_fill_gaps_with_zero() -> None:
    info = shares_info({"a": {"x": 3}, "b": {}}, ["x", "y"], unit="things")
    np.testing.assert_array_equal(info.amounts, [[3, 0], [0, 0]])
    with pytest.raises(ValueError, match=">= 0"):
        shares_info({"a": {"x": -1}}, ["x"], unit="things")


def test_names_are_cut_by_columns_and_lose_what_cannot_be_drawn() -> None:
    assert fit("a\x00b\u202ec\nd") == "abc d"
    assert fit("x" * 30, 10) == "x" * 9 + "\u2026"
    assert fit("猫" * 10, 10) == "猫" * 4 + "\u2026"


def nothing_one_and_many(name: str) -> list[Any]:
    """Infos of the three sizes that every plot must survive."""
    empty = Lines((), "x", "y")
    if name in ("credit-weights", "credit-spread"):
        return [weights(), weights()._replace(rewards=("$a_1$ 100 %", "_b"))]
    if name == "credit-drift":
        return [credit_drift_info("r", [0], [1, 0], [[1.0]], [1.0])]
    if name in ("intervals", "win-rates", "category-wins", "paired-differences", "audit-bias"):
        one = Row("$x^2$ 100 %", 0.5, 0.4, 0.6)
        rows = [one, Row("none", NAN, NAN, NAN, "other"), one._replace(name="猫")]
        return [intervals_info(r, x_label="x") for r in ([], [one], rows)]
    if name in ("scatter", "pareto", "reward-hacking"):
        many = [Point(f"p{i}", i % 5, i % 7, f"_g{i % 3}", 0.1, 0.2) for i in range(20)]
        sizes = ([], [Point("$a", NAN, 1)], many)
        return [points_info(p, x_label="x", y_label="y", front=True) for p in sizes]
    if name in ("shares", "verdict-states", "realised-credit"):
        rows = {f"r{i}": {f"p{j}": float(j) for j in range(9)} for i in range(3)}
        return [shares_info(r, list(p), unit="u") for r, p in (({}, "ab"), (rows, rows["r0"]))]
    long = {f"s{i} $ %": (list(range(40)), [NAN] * 20 + [1.0] * 20) for i in range(9)}
    return [empty, lines_info(long, x_label="$x", y_label="100 %", zero=0.0, reverse_x=True)]


@pytest.mark.parametrize("name", list(plots.PLOTS))
def test_every_plot_draws_nothing_one_and_many(name: str) -> None:
    spec = plots.PLOTS.load(name)
    assert spec.name == name
    assert spec.read.endswith(".")
    for number, info in enumerate(nothing_one_and_many(name)):
        text = plots.svg(spec, info, key=f"k{number}")
        root = ElementTree.fromstring(text)  # noqa: S314 - drawn by us, a line above
        ids = [node.attrib["id"] for node in root.iter() if "id" in node.attrib]
        assert all(found.startswith(f"k{number}-") for found in ids)
        assert not re.search(r"(?:href|src)=\"(?:http|//)", text)
        assert "<style" not in text
        assert spec.alt(info)
        table = spec.table(info)
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert not any(isinstance(c, float) and c != c for row in table.rows for c in row)


def test_formula_signs_in_names_stay_themselves() -> None:
    info = intervals_info([Row("$a_b$ 100%", 0.5, 0.4, 0.6)], x_label="x")
    assert "$a_b$ 100%" in plots.svg(plots.PLOTS.load("intervals"), info, key="k")


def test_the_same_info_gives_the_same_file(tmp_path: Any) -> None:
    spec = plots.PLOTS.load("credit-weights")
    for ending in ("svg", "pdf"):
        files = [tmp_path / f"{i}.{ending}" for i in range(2)]
        for file in files:
            plots.save(spec, weights(), file)
        assert files[0].read_bytes() == files[1].read_bytes()


def test_a_dot_is_hollow_where_chance_explains_it() -> None:
    rows = [Row(str(p), 0.6, 0.5, 0.7, p=p) for p in (0.01, 0.2, None)]
    made = plots.figure(plots.PLOTS.load("intervals"), intervals_info(rows, x_label="x"))
    dots = [line for line in made.axes[0].lines if line.get_marker() == "o"]
    assert [dot.get_markerfacecolor() == PAPER for dot in dots] == [False, True, False]


def test_a_running_mean_uses_the_neighbours_that_there_are() -> None:
    assert running_mean([1, 2, 6, 4], 3).tolist() == [1.5, 3, 4, 5]
    assert running_mean([1, NAN, 3], 3).tolist() == [1, 2, 3]
    assert running_mean([1, 2], 1).tolist() == [1, 2]


def test_the_running_mean_is_among_the_numbers() -> None:
    series = {"a": ([1, 2, 3], [1.0, 2.0, 6.0])}
    table = lines_table(lines_info(series, x_label="x", y_label="y", smooth=3))
    assert table.columns[-1] == "running mean"
    assert [row[-1] for row in table.rows] == [1.5, 3.0, 4.0]


def test_noise_in_the_last_digits_does_not_fill_a_picture() -> None:
    info = lines_info({"a": ([0, 1, 2], [1.0, 1.000003, 0.999997])}, x_label="x", y_label="y")
    low, high = plots.figure(plots.PLOTS.load("lines"), info).axes[0].get_ylim()
    assert low < 0.9
    assert high > 1.1


def test_names_of_near_points_do_not_cover_each_other() -> None:
    assert label_places([(0, 0), (200, 200)], [40, 40], 9) == [(1, 1), (1, 1)]
    crowd = [(0, 0), (3, 1), (1, 3), (2, 2)]  # within a few points: each takes a corner
    assert len(set(label_places(crowd, [40] * 4, 9))) == 4
    # The second stands where the first's name would go to the right.
    assert label_places([(0, 0), (20, 8)], [40, 40], 9)[0] != (1, 1)
