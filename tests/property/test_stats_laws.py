"""Laws of the statistics: names, order and repetition of rows carry no information."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recast_eval.stats import (
    Bounded,
    agreement,
    benjamini_hochberg,
    davidson,
    holm,
    sign_test,
    win_rate,
    worst_case,
)

pairs = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 6)), min_size=1, max_size=40
)
games = st.lists(
    st.tuples(
        st.sampled_from(list(itertools.permutations("abcd", 2))),
        st.sampled_from([0.0, 0.5, 1.0]),
        st.integers(0, 5),
    ),
    min_size=1,
    max_size=30,
)
p_values = st.lists(st.floats(0, 1), max_size=20)


def columns(rows: list[tuple[float, int]]) -> tuple[list[float], list[int]]:
    return [score for score, _ in rows], [prompt for _, prompt in rows]


@given(pairs)
def test_a_win_rate_lies_within_its_interval_within_0_and_1(rows: list[tuple[float, int]]) -> None:
    found = win_rate(*columns(rows))
    assert 0 <= found.low <= found.estimate <= found.high <= 1
    assert found.high - found.low > 0.01
    assert 0 < found.n_effective <= found.n_pairs


@given(pairs, st.randoms(use_true_random=False), st.permutations(range(7)))
def test_shuffling_rows_and_renaming_prompts_change_nothing(
    rows: list[tuple[float, int]], random: object, names: list[int]
) -> None:
    once = win_rate(*columns(rows))
    mixed = [(score, f"prompt {names[prompt]}") for score, prompt in rows]
    random.shuffle(mixed)  # type: ignore[attr-defined]
    again = win_rate([s for s, _ in mixed], [p for _, p in mixed])
    assert (again.estimate, again.low, again.high) == pytest.approx(
        (once.estimate, once.low, once.high), abs=1e-9
    )
    assert sign_test([s for s, _ in mixed], [p for _, p in mixed]) == sign_test(*columns(rows))


@given(pairs)
def test_the_other_model_has_the_mirrored_rate(rows: list[tuple[float, int]]) -> None:
    scores, prompts = columns(rows)
    one, two = win_rate(scores, prompts), win_rate([1 - s for s in scores], prompts)
    assert (two.estimate, two.low, two.high) == pytest.approx(
        (1 - one.estimate, 1 - one.high, 1 - one.low), abs=1e-9
    )
    assert sign_test(scores, prompts) == sign_test([1 - s for s in scores], prompts)


@given(pairs)
def test_the_same_data_twice_add_no_certainty(rows: list[tuple[float, int]]) -> None:
    once, twice = win_rate(*columns(rows)), win_rate(*columns(rows + rows))
    assert twice.estimate == pytest.approx(once.estimate)
    assert sign_test(*columns(rows)) == sign_test(*columns(rows + rows))
    if once.n_effective < once.n_pairs:  # where the cap does not bind
        assert (twice.low, twice.high) == pytest.approx((once.low, once.high))


@given(pairs, st.lists(st.integers(0, 9), max_size=10))
def test_any_scoring_of_the_unscored_stays_within_the_bounds(
    rows: list[tuple[float, int]], unscored: list[int]
) -> None:
    scores, prompts = columns(rows)
    bounds = worst_case(scores, prompts, unscored)
    for score in (0.0, 0.5, 1.0):
        rate = win_rate([*scores, *[score] * len(unscored)], [*prompts, *unscored]).estimate
        assert bounds.low - 1e-12 <= rate <= bounds.high + 1e-12


@given(p_values, st.randoms(use_true_random=False))
def test_adjusted_p_values_keep_order_and_never_fall(p: list[float], random: object) -> None:
    for adjust in (holm, benjamini_hochberg):
        adjusted = adjust(p)
        assert (adjusted >= np.array(p) - 1e-15).all()
        assert (adjusted <= 1).all()
        order = np.argsort(p, kind="stable")
        assert (np.diff(adjusted[order]) >= -1e-15).all()
        mixed = list(range(len(p)))
        random.shuffle(mixed)  # type: ignore[attr-defined]
        np.testing.assert_allclose(adjust([p[i] for i in mixed]), adjusted[mixed], atol=1e-15)
    assert (holm(p) >= benjamini_hochberg(p) - 1e-12).all()


def close(one: Bounded, two: Bounded) -> bool:
    ends = np.array([one.estimate, one.low, one.high]), np.array([two.estimate, two.low, two.high])
    finite = np.isfinite(ends[0])
    return (
        one.kind == two.kind
        and bool((finite == np.isfinite(ends[1])).all())
        and np.allclose(ends[0][finite], ends[1][finite], rtol=1e-3, atol=1e-3)
    )


@settings(max_examples=15)
@given(games, st.randoms(use_true_random=False), st.permutations("wxyz"))
def test_ratings_do_not_depend_on_names_or_rows(
    rows: list[tuple[tuple[str, str], float, int]], random: object, names: list[str]
) -> None:
    rename = dict(zip("abcd", names, strict=True))
    once = davidson(
        [a for (a, _), _, _ in rows],
        [b for (_, b), _, _ in rows],
        [o for _, o, _ in rows],
        [p for *_, p in rows],
    )
    mixed = list(rows)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    again = davidson(
        [rename[a] for (a, _), _, _ in mixed],
        [rename[b] for (_, b), _, _ in mixed],
        [o for _, o, _ in mixed],
        [p for *_, p in mixed],
    )
    for name, rating in once.ratings.items():
        assert close(rating, again.ratings[rename[name]])
        assert once.ranks[name] == again.ranks[rename[name]]
    assert close(once.order, again.order)
    assert close(once.tie, again.tie)
    assert once.gradient < 1e-6


@settings(max_examples=15)
@given(games)
def test_swapping_the_slots_turns_the_order_effect_only(
    rows: list[tuple[tuple[str, str], float, int]],
) -> None:
    first, second = [a for (a, _), _, _ in rows], [b for (_, b), _, _ in rows]
    outcome, prompts = [o for _, o, _ in rows], [p for *_, p in rows]
    # tie chances name the first slot's strength, so the law is exact only without ties
    keep = [i for i, o in enumerate(outcome) if o != 0.5]
    if not keep:
        return
    first, second, outcome, prompts = (
        [column[i] for i in keep] for column in (first, second, outcome, prompts)
    )
    one = davidson(first, second, outcome, prompts)
    two = davidson(second, first, [1 - o for o in outcome], prompts)
    assert two.order.estimate == pytest.approx(-one.order.estimate, abs=1e-6)
    for name, rating in one.ratings.items():
        assert two.ratings[name].estimate == pytest.approx(rating.estimate, abs=1e-6)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["A", "B", "tie", None]),
            st.sampled_from(["A", "B", "tie", None]),
            st.integers(0, 4),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_agreement_is_symmetric_and_blind_to_label_names(
    rows: list[tuple[str | None, str | None, int]],
) -> None:
    one, two = [a for a, _, _ in rows], [b for _, b, _ in rows]
    prompts = [p for *_, p in rows]
    rename = {"A": "x", "B": "y", "tie": "z", None: None}
    found = agreement(one, two, prompts, rng=np.random.default_rng(0), resamples=20)
    other = agreement(
        [rename[x] for x in two],
        [rename[x] for x in one],
        prompts,
        rng=np.random.default_rng(0),
        resamples=20,
    )
    for a, b in ((found.raw, other.raw), (found.kappa, other.kappa), (found.alpha, other.alpha)):
        assert type(a) is type(b)
        if len(a) == 3:
            assert a == pytest.approx(b)
