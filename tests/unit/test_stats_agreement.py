"""Agreement, bands, selection and adjustment: closed forms, then the published examples."""

import numpy as np
import pytest
from statsmodels.genmod.families import Binomial
from statsmodels.genmod.generalized_linear_model import GLM
from statsmodels.stats.inter_rater import cohens_kappa

from recast_eval.stats import (
    Interval,
    Undefined,
    adjusted_win_rate,
    agreement,
    choose_and_report,
    krippendorff_alpha,
    simultaneous_band,
    split_prompts,
)
from recast_eval.stats.letters import alike_groups, rank_ranges

# The worked example of Krippendorff 2011: four observers, twelve units, gaps.
OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def value(found: Interval | Undefined) -> float:
    assert not isinstance(found, Undefined), found
    return found.estimate


def test_alpha_of_the_published_example() -> None:
    nominal = krippendorff_alpha(OBSERVERS, range(12), rng=rng())
    interval = krippendorff_alpha(OBSERVERS, range(12), rng=rng(), metric="interval")
    assert value(nominal) == pytest.approx(0.743, abs=5e-4)
    assert value(interval) == pytest.approx(0.849, abs=5e-4)
    assert nominal.low < value(nominal) < nominal.high  # type: ignore[union-attr]


def test_kappa_is_that_of_statsmodels_and_gaps_are_dropped_pairwise() -> None:
    draw = rng()
    one = draw.integers(0, 3, 150)
    two = np.where(draw.random(150) < 0.6, one, draw.integers(0, 3, 150))
    table = np.zeros((3, 3))
    np.add.at(table, (one, two), 1)
    found = agreement([*one, None, 1], [*two, 1, None], range(152), rng=rng())
    assert value(found.kappa) == pytest.approx(cohens_kappa(table).kappa)
    assert value(found.raw) == pytest.approx(np.mean(one == two))
    assert (found.n_items, found.n_missing) == (150, 2)


def test_agreement_and_krippendorff_are_one_alpha_for_two_judges() -> None:
    one, two = list("AABTBABTTB"), list("ABBTBAATTB")
    both = agreement(one, two, range(10), rng=rng()).alpha
    assert value(both) == pytest.approx(value(krippendorff_alpha([one, two], range(10), rng=rng())))


def test_what_is_not_defined_has_a_reason_and_no_number() -> None:
    same = agreement(["A"] * 10, ["A"] * 10, range(10), rng=rng())
    assert isinstance(same.kappa, Undefined)
    assert isinstance(same.alpha, Undefined)
    assert same.raw[:1] == (1.0,)
    assert same.raw[1] == pytest.approx(0.7224672)  # Wilson, 10 of 10: not [1, 1]
    constant = agreement(["A"] * 6, list("AABBAB"), range(6), rng=rng())
    assert value(constant.kappa) == pytest.approx(0, abs=1e-12)  # one rater all A: chance
    blank = agreement([None, "A"], ["A", None], [0, 1], rng=rng())
    assert isinstance(blank.raw, Undefined)
    assert isinstance(krippendorff_alpha([["A", None]], [0, 1], rng=rng()), Undefined)


def test_full_agreement_has_an_interval_of_some_width() -> None:
    found = agreement(list("ABABABAB"), list("ABABABAB"), range(8), rng=rng())
    assert value(found.kappa) == 1
    assert 0 < found.kappa[1] < 0.6
    assert found.kappa[2] == 1


def test_labels_that_repeat_within_prompts_widen_the_interval() -> None:
    draw = rng()
    one = draw.integers(0, 2, 60)
    two = np.where(draw.random(60) < 0.7, one, 1 - one)
    alone = agreement(one.tolist(), two.tolist(), range(60), rng=rng()).kappa
    again = agreement(
        np.repeat(one, 5).tolist(), np.repeat(two, 5).tolist(), np.repeat(range(60), 5), rng=rng()
    ).kappa
    assert again == pytest.approx(alone, abs=1e-9)


def test_a_band_holds_the_whole_curve() -> None:
    draw, held = np.random.default_rng(4), 0
    truth = np.sin(np.arange(12))
    for _ in range(300):
        curves = truth + np.cumsum(draw.normal(size=(40, 12)), axis=1)
        band = simultaneous_band(curves, rng=draw, resamples=400)
        assert not isinstance(band, Undefined)
        held += bool(((band.low <= truth) & (truth <= band.high)).all())
    assert 0.92 <= held / 300 <= 0.99


def test_a_band_is_wider_than_a_point_and_pinned_where_nothing_moves() -> None:
    curves = np.c_[np.zeros(30), rng().normal(size=(30, 20))]
    band = simultaneous_band(curves, rng=rng())
    assert not isinstance(band, Undefined)
    assert band.low[0] == band.high[0] == 0
    assert band.critical > 2.8
    assert isinstance(simultaneous_band([[1.0, 2.0]], rng=rng()), Undefined)
    twice = simultaneous_band(np.repeat(curves, 2, axis=0), np.repeat(range(30), 2), rng=rng())
    assert not isinstance(twice, Undefined)
    np.testing.assert_allclose(twice.high, band.high)
    with pytest.raises(ValueError, match="nan"):
        simultaneous_band([[1.0, np.nan], [0.0, 1.0]], rng=rng())


def test_the_best_of_many_equal_settings_is_quoted_without_its_luck() -> None:
    draw, optimism = np.random.default_rng(0), []
    for _ in range(200):
        values = draw.normal(size=(9, 60))
        found = choose_and_report(values, range(60), split_prompts(range(60), rng=draw))
        optimism.append(found.optimism)
        report = value(found.report)
        assert found.choosing_mean - report == pytest.approx(found.optimism)
    assert np.mean(optimism) > 0.15  # the choosing mean is luck, the reported mean is not


def test_a_split_keeps_prompts_whole() -> None:
    prompts = np.repeat(np.arange(7), 3)
    mask = split_prompts(prompts, rng=rng())
    assert all(len(set(mask[prompts == p])) == 1 for p in range(7))
    with pytest.raises(ValueError, match="one in both"):
        choose_and_report(np.ones((2, 4)), ["a", "a", "b", "c"], [True, False, True, False])
    with pytest.raises(ValueError, match="two prompts"):
        split_prompts(["a", "a"], rng=rng())


def test_adjusting_removes_what_a_property_explains() -> None:
    draw = np.random.default_rng(1)
    brightness = draw.normal(size=3000) + 0.6
    won = (draw.random(3000) < 1 / (1 + np.exp(-brightness))).astype(float)
    found = adjusted_win_rate(won, range(3000), {"brightness": brightness, "size": np.zeros(3000)})
    assert not isinstance(found, Undefined)
    assert found.raw > 0.6
    assert found.adjusted.low < 0.5 < found.adjusted.high
    assert found.constant == ("size",)
    design = np.column_stack([np.ones(3000), brightness / brightness.std()])
    oracle = GLM(won, design, family=Binomial()).fit(cov_type="HC0")
    assert found.slopes[0].log_odds.estimate == pytest.approx(oracle.params[1], abs=1e-3)
    width = found.slopes[0].log_odds.high - found.slopes[0].log_odds.estimate
    assert width == pytest.approx(1.9608 * oracle.bse[1], rel=0.01)


def test_few_prompts_are_not_adjusted() -> None:
    found = adjusted_win_rate([1, 0] * 5, range(10), {"size": np.arange(10.0)})
    assert isinstance(found, Undefined)
    alike = adjusted_win_rate([0.5] * 60, range(60), {"size": np.arange(60.0)})
    assert isinstance(alike, Undefined)
    with pytest.raises(ValueError, match="size"):
        adjusted_win_rate([1, 0], [0, 1], {"size": [1.0]})


def test_alike_groups_overlap_where_likeness_does_not_carry_over() -> None:
    different = np.zeros((4, 4), dtype=bool)
    different[0, 2] = different[2, 0] = True  # 0 ~ 1 ~ 2 but 0 and 2 differ
    different[3, :3] = different[:3, 3] = True  # 3 differs from all
    assert alike_groups(different) == [[0, 1], [1, 2], [3]]


def test_ranks_are_what_the_decisions_leave() -> None:
    better = np.zeros((3, 3), dtype=bool)
    better[0, 2] = True
    assert rank_ranges(better) == [(1, 2), (1, 3), (2, 3)]
