"""Win rates, tests and adjustments: closed forms, then statsmodels and SciPy as oracles."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from recast_eval.stats import (
    Undefined,
    benjamini_hochberg,
    decisive_win_rate,
    detectable_rate,
    holm,
    matched_runs,
    mcnemar,
    paired_difference,
    pairs_needed,
    sign_counts,
    sign_flip_test,
    sign_test,
    win_rate,
    worst_case,
)


@pytest.mark.parametrize(("wins", "prompts"), [(10, 10), (0, 10), (1, 1), (0, 1), (40, 40)])
def test_a_clean_sweep_is_wilson_over_prompts_and_never_of_zero_width(
    wins: int, prompts: int
) -> None:
    found = win_rate([1.0] * wins + [0.0] * (prompts - wins), range(prompts))
    low, high = proportion_confint(wins, prompts, method="wilson")
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)
    assert found.high - found.low > 0.05
    assert found.n_effective == prompts


def test_images_of_a_prompt_that_never_differ_count_as_one() -> None:
    swept = win_rate([1] * 40, np.repeat(np.arange(10), 4))
    assert swept.n_effective == 10
    once = win_rate([1, 0] * 25, range(50))
    eight = win_rate(np.repeat([1, 0] * 25, 8), np.repeat(np.arange(50), 8))
    assert eight.n_effective == pytest.approx(once.n_effective)
    assert (eight.estimate, eight.low, eight.high) == pytest.approx(
        (once.estimate, once.low, once.high)
    )


def test_the_effective_number_is_p_q_over_the_square_of_the_clustered_error() -> None:
    # prompt means 1, 1/2, 1, 1/2 -> p = 3/4, SE^2 = (1/12) / 4 = 1/48, n = (3/16) * 48 = 9 > 8
    capped = win_rate([1, 1, 1, 0, 1, 1, 1, 0], [0, 0, 1, 1, 2, 2, 3, 3])
    assert capped.n_effective == 8
    # prompt means 1, 0, 1, 1 -> p = 3/4, SE^2 = (1/4) / 4 = 1/16, n = 3
    clustered = win_rate([1, 1, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 2, 2, 3, 3])
    assert clustered.n_effective == pytest.approx(3)


def test_prompts_weigh_alike_whatever_their_images() -> None:
    assert win_rate([1, 1, 1, 0], ["a", "a", "a", "b"]).estimate == 0.5


def test_cluster_t_is_the_one_sample_t_interval_of_prompt_means() -> None:
    means = [0.75, 0.5, 0.25, 0.75, 1.0, 0.5]
    scores = np.concatenate([[1] * round(4 * m) + [0] * (4 - round(4 * m)) for m in means])
    found = win_rate(scores, np.repeat(np.arange(6), 4), method="t")
    oracle = stats.ttest_1samp(means, 0.5).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high))


def test_with_forty_prompts_the_interval_is_wilsons_with_the_effective_number() -> None:
    scores = [1.0] * 40 + [0.0] * 20
    found = win_rate(scores, range(60))
    low, high = proportion_confint(59 * 2 / 3, 59, method="wilson")
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)


def test_ties_are_half_in_the_headline_and_absent_from_decisive_only() -> None:
    scores, prompts = [1, 0.5, 0.5, 0], ["a", "b", "c", "d"]
    assert win_rate(scores, prompts).tie_share == 0.5
    assert win_rate([1, 0.5, 1, 0], prompts).tie_share == 0.25
    decisive = decisive_win_rate([1, 0.5, 1, 0], prompts)
    assert not isinstance(decisive, Undefined)
    assert (decisive.estimate, decisive.n_pairs) == (pytest.approx(2 / 3), 3)
    assert isinstance(decisive_win_rate([0.5, 0.5], ["a", "b"]), Undefined)


@pytest.mark.parametrize(
    ("scores", "prompts", "says"),
    [
        ([], [], "at least one"),
        ([0.7], ["a"], "0.7"),
        ([math.nan], ["a"], "nan"),
        ([1, None], ["a", "b"], "nan|finite|number"),
        ([1], ["a", "b"], "2 ids for 1"),
        ([1, 0], ["a", None], "None"),
        ([1, 0], ["a", math.nan], "nan"),
        ([[1, 0]], ["a", "b"], "shape"),
        (["x"], ["a"], "number"),
    ],
)
def test_malformed_scores_name_the_law_and_the_value(
    scores: list[float], prompts: list[str], says: str
) -> None:
    for function in (win_rate, sign_test):
        with pytest.raises(ValueError, match=says):
            function(scores, prompts)


def test_a_level_of_95_is_refused() -> None:
    with pytest.raises(ValueError, match="95"):
        win_rate([1, 0], [0, 1], level=95)


def test_unscored_pairs_move_the_rate_by_no_more_than_their_share() -> None:
    bounds = worst_case([1, 1, 0, 1], ["a", "b", "c", "d"], ["e"])
    assert (bounds.low, bounds.high) == (pytest.approx(3 / 5), pytest.approx(4 / 5))
    assert bounds.low_end < bounds.low <= bounds.high < bounds.high_end
    nothing = worst_case([], [], ["a", "b"])
    assert (nothing.low, nothing.high, nothing.n_scored) == (0, 1, 0)


def test_the_sign_test_is_a_fair_coin_over_prompts() -> None:
    assert sign_test([1] * 10, range(10)) == pytest.approx(2 / 2**10)
    scores, prompts = [1, 1, 0, 0.5, 0.5, 1, 0], ["a", "a", "a", "b", "b", "c", "d"]
    assert sign_counts(scores, prompts) == (2, 1, 1)  # a 2:1, b level, c won, d lost
    assert sign_test(scores, prompts) == pytest.approx(stats.binomtest(2, 3).pvalue)
    assert sign_test([0.5, 0.5], ["a", "b"]) == 1.0


def test_sign_flips_are_counted_exactly_for_few_prompts_and_drawn_for_many() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0.4, 1, 12)
    oracle = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert sign_flip_test(values, range(12), rng=rng) == pytest.approx(oracle, abs=1e-12)
    many = rng.normal(0.2, 1, 80)
    exact = stats.ttest_1samp(many, 0).pvalue
    assert sign_flip_test(many, range(80), rng=rng) == pytest.approx(exact, abs=0.02)
    assert sign_flip_test(np.full(200, 0.7), range(200), rng=rng) == pytest.approx(1e-4)
    assert sign_flip_test([0.0, 0.0], range(2), rng=rng) == 1.0


def test_sign_flips_of_win_rates_are_counted_exactly_at_any_size() -> None:
    rng = np.random.default_rng(1)
    unused = np.random.default_rng(0)
    # one pair a prompt: it is the sign test
    scores = rng.choice([0.0, 0.5, 1.0], 300, p=[0.25, 0.4, 0.35])
    exact = sign_flip_test(scores - 0.5, range(300), rng=unused)
    assert exact == pytest.approx(sign_test(scores, range(300)), rel=1e-9)
    won = sign_flip_test(np.full(300, 0.5), range(300), rng=unused)
    assert won == pytest.approx(2.0**-299, rel=1e-9)
    # prompts of 1 to 4 pairs, few enough to write all patterns down
    ids = np.repeat(np.arange(12), rng.integers(1, 5, 12))
    gaps = rng.choice([-0.5, 0.0, 0.5], len(ids), p=[0.2, 0.3, 0.5])
    means = np.array([gaps[ids == n].mean() for n in range(12)])
    signs = np.array(np.meshgrid(*[[-1, 1]] * 12)).reshape(12, -1)
    share = np.mean(np.abs(means @ signs) >= abs(means.sum()) - 1e-9)
    assert sign_flip_test(gaps, ids, rng=unused) == pytest.approx(share, rel=1e-12)
    assert unused.random() == np.random.default_rng(0).random()  # nothing was drawn


def test_mcnemar_looks_at_the_items_where_one_failed() -> None:
    first = [True] * 6 + [False] * 20
    second = [True] + [False] * 25
    assert mcnemar(first, second) == pytest.approx(2 / 2**5)
    with pytest.raises(ValueError, match="shapes"):
        mcnemar([True], [True, False])


def test_adjustments_are_those_of_statsmodels() -> None:
    raw = np.random.default_rng(3).random(40) ** 3
    for ours, name in ((holm, "holm"), (benjamini_hochberg, "fdr_bh")):
        np.testing.assert_allclose(ours(raw), multipletests(raw, method=name)[1], atol=1e-12)
        assert ours([]).shape == (0,)
        assert ours([0.04]) == pytest.approx([0.04])
        with pytest.raises(ValueError, match=r"1\.2"):
            ours([0.1, 1.2])
        with pytest.raises(ValueError, match="nan"):
            ours([0.1, math.nan])


def test_paired_differences_are_the_paired_t_test_and_scipys_bca() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.gamma(2, 1, 60), rng.gamma(2, 1, 60) - 0.3
    found = paired_difference(first, second, range(60), rng=np.random.default_rng(5))
    oracle = stats.ttest_rel(first, second)
    ends = oracle.confidence_interval(0.95)
    assert found.p == pytest.approx(oracle.pvalue)
    assert not isinstance(found.t, Undefined)
    assert not isinstance(found.bca, Undefined)
    assert (found.t.low, found.t.high) == pytest.approx((ends.low, ends.high))
    assert (found.bca.low, found.bca.high) == pytest.approx((ends.low, ends.high), abs=0.1)
    assert found.improved.estimate == pytest.approx(np.mean(first > second))


def test_seeds_of_a_prompt_are_one_difference() -> None:
    first, second = [2, 4, 1, 1], [1, 1, 1, 2]  # prompt a: +2, prompt b: -1/2
    found = paired_difference(first, second, ["a", "a", "b", "b"], rng=np.random.default_rng(0))
    assert (found.estimate, found.n_prompts, found.n_pairs) == (0.75, 2, 4)
    assert found.improved.estimate == 0.5


def test_one_prompt_and_one_same_step_for_all_have_no_bootstrap() -> None:
    rng = np.random.default_rng(0)
    alone = paired_difference([2.0], [1.0], ["a"], rng=rng)
    assert isinstance(alone.t, Undefined)
    assert alone.p == 1
    same = paired_difference([2.0] * 8, [1.0] * 8, range(8), rng=rng)
    assert isinstance(same.bca, Undefined)
    assert same.p == pytest.approx(2 / 2**8)
    with pytest.raises(ValueError, match="3 and 2"):
        paired_difference([1, 2, 3], [1, 2], [0, 1, 2], rng=rng)


def test_fifteen_of_fifteen_matched_runs() -> None:
    runs = {(budget, seed): budget + seed for budget in (0.2, 0.5, 0.8) for seed in range(5)}
    better = {key: value + 0.1 + 0.01 * key[1] for key, value in runs.items()}
    found = matched_runs(better | {"extra": 1.0}, runs)
    assert (found.wins, found.losses, found.unmatched) == (15, 0, ("extra",))
    assert found.p == pytest.approx(2 / 2**15)
    with pytest.raises(ValueError, match="no run matches"):
        matched_runs({"a": 1.0}, {"b": 1.0})


@pytest.mark.parametrize(
    ("rate", "decisive", "with_ties", "images"),
    [
        (0.52, 4904, 7006, 12260),
        (0.53, 2178, 3112, 5445),
        (0.55, 783, 1119, 1958),
        (0.60, 194, 278, 485),
        (0.65, 85, 122, 213),
        (0.70, 47, 68, 118),
    ],
)
def test_the_table_of_needed_pairs(rate: float, decisive: int, with_ties: int, images: int) -> None:
    assert pairs_needed(rate).decisive_pairs == decisive
    need = pairs_needed(rate, tie_share=0.3, pairs_per_prompt=4, within_correlation=0.25)
    assert (need.pairs, need.pairs_clustered) == (with_ties, images)
    assert need.prompts == math.ceil(images / 4)
    back = detectable_rate(need.prompts, tie_share=0.3, pairs_per_prompt=4)
    assert back == pytest.approx(rate, abs=0.003)


def test_needed_pairs_give_the_power_that_was_asked() -> None:
    need = pairs_needed(0.6).decisive_pairs
    wins = np.arange(need + 1)
    reject = np.array([stats.binomtest(int(w), need).pvalue <= 0.05 for w in wins])
    # the exact test keeps 3 % of false alarms instead of 5 %, and pays for it in power
    assert stats.binom.pmf(wins, need, 0.6)[reject].sum() == pytest.approx(0.8, abs=0.04)


def test_power_refuses_what_no_size_settles() -> None:
    with pytest.raises(ValueError, match=r"0\.5"):
        pairs_needed(0.5)
    with pytest.raises(ValueError, match="tie_share"):
        pairs_needed(0.6, tie_share=1.0)
    assert detectable_rate(3) == 1.0
