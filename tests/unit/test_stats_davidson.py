"""Ratings: closed forms, planted truths, other libraries, and the battles others get wrong."""

import math

import evalica
import numpy as np
import pytest
from statsmodels.discrete.conditional_models import ConditionalLogit
from statsmodels.discrete.discrete_model import Logit

from recast_eval.stats import Davidson, Difference, davidson

Battles = tuple[list[str], list[str], list[float]]


def battles(*rows: tuple[str, str, int, int, int]) -> Battles:
    """Lists of (first, second, outcome) from (first, second, wins, losses, ties)."""
    first, second, outcome = [], [], []
    for a, b, wins, losses, ties in rows:
        first += [a] * (wins + losses + ties)
        second += [b] * (wins + losses + ties)
        outcome += [1.0] * wins + [0.0] * losses + [0.5] * ties
    return first, second, outcome


def planted(seed: int, each: int = 400) -> tuple[list[str], list[str], list[float], list[int]]:
    """Both orders of all pairs of four models with known ratings, order and ties."""
    rng = np.random.default_rng(seed)
    truth = dict(zip("abcd", (0.0, 0.4, 0.8, 1.2), strict=True))
    first, second, outcome, prompts = [], [], [], []
    for a in truth:
        for b in truth:
            if a == b:
                continue
            utilities = np.array([truth[a] + 0.4, truth[b], -0.5 + (truth[a] + truth[b]) / 2])
            chances = np.exp(utilities) / np.exp(utilities).sum()
            outcome += rng.choice([1.0, 0.0, 0.5], each, p=chances).tolist()
            first += [a] * each
            second += [b] * each
            prompts += list(range(each))
    return first, second, outcome, prompts


def pair(found: Davidson, first: str, second: str) -> float:
    """Rating of ``first`` minus ``second``."""
    return found.ratings[first].estimate - found.ratings[second].estimate


def test_two_models_have_a_closed_form() -> None:
    # the optimum is d = log(w / l) and nu = t / sqrt(w l)
    found = davidson(*battles(("a", "b", 30, 10, 12)), ridge=1e-9)
    assert pair(found, "a", "b") == pytest.approx(math.log(3), abs=1e-6)
    assert found.tie.estimate == pytest.approx(math.log(12 / math.sqrt(300)), abs=1e-6)


def test_the_order_effect_has_a_closed_form() -> None:
    # no ties: log odds 20:10 one way and 24:6 the other are order + d and order - d
    found = davidson(*battles(("a", "b", 20, 10, 0), ("b", "a", 24, 6, 0)), ridge=1e-9)
    assert found.order.estimate == pytest.approx((math.log(2) + math.log(4)) / 2, abs=1e-6)
    assert pair(found, "a", "b") == pytest.approx((math.log(2) - math.log(4)) / 2, abs=1e-6)
    assert found.order_odds.estimate == pytest.approx(math.sqrt(8), abs=1e-5)


def test_the_error_of_two_models_is_that_of_a_log_odds() -> None:
    found = davidson(*battles(("a", "b", 60, 40, 0)), ridge=1e-9)
    value = found.differences[0].value
    half = 1.984217 * math.sqrt(1 / 60 + 1 / 40) * math.sqrt(100 / 99)  # t with 99 df
    assert value.high - value.estimate == pytest.approx(half, rel=1e-5)


def test_planted_ratings_order_and_ties_are_found() -> None:
    found = davidson(*planted(0))
    for name, truth in zip("abcd", (-0.6, -0.2, 0.2, 0.6), strict=True):
        assert found.ratings[name].low < truth < found.ratings[name].high
        assert found.ratings[name].estimate == pytest.approx(truth, abs=0.12)
    assert found.order.low < 0.4 < found.order.high
    assert found.tie.low < -0.5 < found.tie.high
    assert sum(r.estimate for r in found.ratings.values()) == pytest.approx(0, abs=1e-9)
    assert list(found.ratings) == ["d", "c", "b", "a"]
    assert found.ranks == {"d": (1, 1), "c": (2, 2), "b": (3, 3), "a": (4, 4)}
    assert found.gradient < 1e-6


def test_the_bootstrap_agrees_with_the_sandwich() -> None:
    data = planted(1, each=120)
    robust, drawn = davidson(*data), davidson(*data, rng=np.random.default_rng(0))
    for name in "abcd":
        one, two = robust.ratings[name], drawn.ratings[name]
        assert one.estimate == two.estimate
        assert two.high - two.low == pytest.approx(one.high - one.low, rel=0.15)


def test_without_ties_it_is_evalicas_bradley_terry() -> None:
    rng = np.random.default_rng(2)
    first = rng.choice(list("pqrst"), 400)
    second = np.array([rng.choice([n for n in "pqrst" if n != a]) for a in first])
    gap = np.array([ord(a) - ord(b) for a, b in zip(first, second, strict=True)])
    won = rng.random(400) < 1 / (1 + np.exp(gap / 2))
    found = davidson(first, second, won.astype(float), ridge=1e-9, order_effect=False)
    winners = [evalica.Winner.X if w else evalica.Winner.Y for w in won]
    oracle = np.log(evalica.bradley_terry(first, second, winners, tolerance=1e-12).scores)
    oracle -= oracle.mean()
    for name in "pqrst":
        assert found.ratings[name].estimate == pytest.approx(oracle[name], abs=1e-4)


def test_without_ties_but_with_order_it_is_statsmodels_logit() -> None:
    first, second, outcome, _ = planted(3, each=80)
    keep = [i for i, o in enumerate(outcome) if o != 0.5]
    a, b = [first[i] for i in keep], [second[i] for i in keep]
    y = np.array([outcome[i] for i in keep])
    design = np.array([[(n == x) - (n == z) for n in "abc"] for x, z in zip(a, b, strict=True)])
    oracle = Logit(y, np.column_stack([np.ones(len(y)), design.astype(float)])).fit(disp=0).params
    found = davidson(a, b, y, ridge=1e-9)
    assert found.order.estimate == pytest.approx(oracle[0], abs=1e-5)
    assert [pair(found, n, "d") for n in "abc"] == pytest.approx(list(oracle[1:]), abs=1e-5)


def test_with_ties_it_is_statsmodels_conditional_logit() -> None:
    first, second, outcome, _ = planted(4, each=30)
    chosen = [{1.0: 0, 0.0: 1, 0.5: 2}[o] for o in outcome]
    rows, y, group = [], [], []
    for n, (a, b, c) in enumerate(zip(first, second, chosen, strict=True)):
        one, two = ([float(n == x) for n in "abc"] for x in (a, b))
        both = [(u + v) / 2 for u, v in zip(one, two, strict=True)]
        rows += [[*one, 1.0, 0.0], [*two, 0.0, 0.0], [*both, 0.0, 1.0]]
        y += [float(c == k) for k in range(3)]
        group += [n] * 3
    oracle = ConditionalLogit(np.array(y), np.array(rows), groups=np.array(group)).fit(disp=0)
    found = davidson(first, second, outcome, ridge=1e-9)
    ours = [*(pair(found, n, "d") for n in "abc"), found.order.estimate, found.tie.estimate]
    assert ours == pytest.approx(list(oracle.params), abs=1e-3)  # where its optimiser stops


def test_a_winless_model_is_placed_below_and_as_a_bound() -> None:
    # GenArena prints A 1102, B 1032, C 1000.0 [1000, 1000] for these battles: C has lost
    # 20 of 20, and in some of its resamples C is above B.
    found = davidson(*battles(("A", "B", 6, 4, 0), ("A", "C", 10, 0, 0), ("B", "C", 10, 0, 0)))
    assert found.ratings["C"].kind == "at most"
    assert found.ratings["C"].text.startswith("at most -2.")
    assert found.ratings["C"].high < found.ratings["B"].low < found.ratings["A"].estimate
    assert found.ratings["A"].kind == found.ratings["B"].kind == "interval"
    assert found.ranks == {"A": (1, 2), "B": (1, 2), "C": (3, 3)}
    assert {frozenset(group) for group in found.alike} == {frozenset("AB"), frozenset("C")}
    assert found.order.kind == "fixed"  # no pair was seen in both orders


def test_disconnected_groups_are_rated_apart() -> None:
    # GenArena puts them on one scale: A = C = 1070, B = D = 880.
    found = davidson(*battles(("A", "B", 7, 3, 0), ("C", "D", 7, 3, 0)))
    assert {frozenset(group) for group in found.groups} == {frozenset("AB"), frozenset("CD")}
    assert {frozenset((d.first, d.second)) for d in found.differences} == {
        frozenset("AB"),
        frozenset("CD"),
    }
    assert found.ranks == dict.fromkeys("ABCD", (1, 2))


def test_the_bound_of_an_unbeaten_model_is_not_the_ridges() -> None:
    # Without ridge: 100 log(1 + e^-d) = t^2 / 2 with t = 1.984 (99 df), so d = 3.92.
    bounds = []
    for ridge in (1e-4, 0.01, 0.5):
        found = davidson(*battles(("a", "b", 100, 0, 0)), ridge=ridge)
        assert found.ratings["a"].kind == "at least"
        assert found.ratings["b"].kind == "at most"
        bounds.append(found.differences[0].value.low)
    assert bounds == pytest.approx([3.92] * 3, abs=0.01)
    # ten images of ten prompts are ten prompts: 10 log(1 + e^-d) = 2.262^2 / 2, so d = 1.23
    few = davidson(*battles(("a", "b", 100, 0, 0)), np.repeat(np.arange(10), 10))
    assert few.differences[0].value.low == pytest.approx(1.23, abs=0.01)


def test_in_a_chain_the_middle_cannot_be_placed() -> None:
    found = davidson(*battles(("a", "b", 10, 0, 0), ("b", "c", 10, 0, 0)))
    assert [found.ratings[n].kind for n in "abc"] == ["at least", "open", "at most"]
    assert "cannot be placed" in found.ratings["b"].text


def test_ties_place_a_winless_model_only_where_others_say_how_often_one_ties() -> None:
    # alone, d = log(w / l) has no end; with nu known from a and b, ties bound c from below
    alone = davidson(*battles(("a", "c", 20, 0, 4)))
    assert alone.differences[0].value.kind == "at least"
    rows = (("a", "b", 8, 8, 4), ("a", "c", 20, 0, 4), ("b", "c", 20, 0, 4))
    assert {r.kind for r in davidson(*battles(*rows)).ratings.values()} == {"interval"}


def test_an_always_first_judge_places_no_one() -> None:
    found = davidson(["a", "b"] * 50, ["b", "a"] * 50, [1.0] * 100, np.repeat(np.arange(50), 2))
    assert found.order.kind == "at least"
    assert found.order.low > 2.5
    assert {r.kind for r in found.ratings.values()} == {"open"}
    assert found.differences[0].p_holm == 1
    assert len(found.alike) == 1


def test_all_ties_say_equal_and_bound_the_tie() -> None:
    found = davidson(*battles(("a", "b", 0, 0, 30)))
    assert found.tie.kind == "at least"
    assert pair(found, "a", "b") == pytest.approx(0, abs=1e-9)


def test_no_ties_bound_the_tie_from_above() -> None:
    found = davidson(*battles(("a", "b", 30, 30, 0)))
    # equal models, 60 games, no tie: 60 log(2 / (2 + nu)) = -2.001^2 / 2
    assert found.tie.kind == "at most"
    assert found.tie.high == pytest.approx(math.log(2 * (math.exp(2.0010**2 / 120) - 1)), abs=1e-3)


def few_behind(
    scores: list[list[int]], others: int = 60
) -> tuple[list[str], list[str], list[float], list[str]]:
    """A model "new" that met "old" on few prompts, "old" and "base" level on many others.

    Both orders of a pair agree; ``scores`` has a list of images for each prompt of "new".
    """
    rows = [("new", "old", s, f"few {p}") for p, found in enumerate(scores) for s in found]
    rows += [("old", "base", i % 2, f"many {i}") for i in range(others)]
    both = [r for a, b, s, p in rows for r in ((a, b, float(s), p), (b, a, 1.0 - s, p))]
    first, second, outcome, prompts = (list(column) for column in zip(*both, strict=True))
    return first, second, outcome, prompts


def difference(found: Davidson, a: str, b: str) -> Difference:
    return next(d for d in found.differences if {d.first, d.second} == {a, b})


@pytest.mark.parametrize(
    "scores", [[[1, 1, 1, 0]] * 2, [[1, 1, 1, 0], [1, 0, 1, 0]], [[1, 1, 0]] * 2 + [[1, 0, 0]]]
)
def test_a_contrast_is_as_sure_as_the_prompts_that_carry_it(scores: list[list[int]]) -> None:
    # sixty prompts about other models say nothing of "new": it is as if it and "old" were alone
    many, alone = davidson(*few_behind(scores)), davidson(*few_behind(scores, others=0))
    one, two = (difference(found, "new", "old") for found in (many, alone))
    width = [d.value.high - d.value.low for d in (one, two)]
    assert width[0] == pytest.approx(width[1], rel=0.02)
    assert one.p == pytest.approx(two.p, rel=0.05)
    assert one.p > 0.2  # two prompts that both end 3:1 once gave [1.09, 1.10], p 1e-114
    assert many.ranks == dict.fromkeys(("new", "old", "base"), (1, 3))
    other = difference(many, "old", "base").value
    assert other.high - other.low < 1.1


def test_bootstrap_draws_do_not_stand_for_prompts_that_are_not_there() -> None:
    data = few_behind([[1, 1, 1, 0], [1, 0, 1, 0]])
    robust, drawn = davidson(*data), davidson(*data, rng=np.random.default_rng(0), resamples=50)
    assert difference(drawn, "new", "old").value == difference(robust, "new", "old").value


@pytest.mark.parametrize("images", [[1, 1, 1, 0], [1, 1, 1, 1]])
def test_what_one_prompt_carries_has_no_interval_and_the_rest_keeps_its_own(
    images: list[int],
) -> None:
    found = davidson(*few_behind([images]))
    for other in ("old", "base"):
        assert difference(found, "new", other).value.kind == "open"
        assert difference(found, "new", other).p == 1
        assert found.ratings[other].kind == "interval"
    assert found.ratings["new"].kind == "open"
    assert len(found.alike) == 1


@pytest.mark.parametrize("others", [0, 60])
def test_three_of_three_is_no_proof_and_six_of_six_is_one(others: int) -> None:
    # two equal models end 3:0 or 0:3 in a quarter of all tries
    three, six = (davidson(*few_behind([[1]] * n, others)) for n in (3, 6))
    assert any({"new", "old"} <= set(group) for group in three.alike)
    assert difference(three, "new", "old").value.kind == "at least"
    assert difference(three, "new", "old").p == pytest.approx(0.178, abs=0.002)
    assert difference(six, "new", "old").p == pytest.approx(0.0345, abs=0.001)
    bound = difference(six, "new", "old").value.low
    assert 0 < bound < 1


@pytest.mark.parametrize("prompts", range(2, 13))
def test_equal_models_are_told_apart_in_five_percent_at_most(prompts: int) -> None:
    # exact: all numbers of wins with their binomial chances
    chance = 0.0
    for wins in range(prompts + 1):
        found = davidson(*battles(("a", "b", wins, prompts - wins, 0)))
        value = found.differences[0].value
        apart = found.differences[0].p < 0.05
        assert apart == (value.low > 0 or value.high < 0)
        chance += apart * math.comb(prompts, wins) / 2**prompts
    assert chance <= 0.05


def test_one_prompt_gives_no_interval() -> None:
    found = davidson(*battles(("a", "b", 3, 2, 1)), ["same"] * 6)
    assert {r.kind for r in found.ratings.values()} == {"open"}


def test_prompts_that_all_say_the_same_count_once_each() -> None:
    rows = battles(("a", "b", 6, 4, 0))
    many = tuple(column * 30 for column in rows)
    found = davidson(*many, np.repeat(np.arange(30), 10))
    once = davidson(*battles(("a", "b", 18, 12, 0)))
    width = [d.value.high - d.value.low for d in (found.differences[0], once.differences[0])]
    assert width[0] == pytest.approx(width[1], rel=0.05)


def test_thirty_sparse_models_converge() -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 30, 240)
    second = (first + rng.integers(1, 30, 240)) % 30
    won = rng.random(240) < 1 / (1 + np.exp((second - first) / 8))
    found = davidson(first, second, won.astype(float), rng.integers(0, 80, 240))
    assert found.gradient < 1e-6
    assert found.ratings[29].estimate > found.ratings[0].estimate


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((["a"], ["a"], [1]), "does not meet itself, got 'a'"),
        ((["a"], ["b"], [0.3]), "0.3"),
        ((["a"], ["b", "c"], [1]), "2 for 1"),
        (([], [], []), "at least one"),
        ((["a"], [None], [1]), "None"),
    ],
)
def test_malformed_battles_are_refused(arguments: Battles, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        davidson(*arguments)
    with pytest.raises(ValueError, match="ridge"):
        davidson(["a"], ["b"], [1], ridge=0)


def test_models_named_like_verdicts_are_only_names() -> None:
    found = davidson(*battles(("tie", "A", 6, 4, 2), ("A", "B", 3, 5, 1), ("B", "tie", 4, 4, 0)))
    assert set(found.ratings) == {"tie", "A", "B"}


def test_without_ties_it_is_arena_ranks_bradley_terry() -> None:
    rows = [("a", "b", 30, 10, 0), ("b", "c", 22, 18, 0), ("a", "c", 35, 5, 0)]
    rows += [("c", "d", 12, 9, 0), ("a", "d", 20, 8, 0), ("d", "b", 7, 11, 0)]
    found = davidson(*battles(*rows), ridge=1e-9, order_effect=False)
    # printed by arena-rank 0.1.1 (BradleyTerry, sandwich) for these battles, in log-odds around 0;
    # it needs JAX, so its numbers stand here
    theirs = {"a": 0.99123477, "b": -0.13863862, "c": -0.44307177, "d": -0.40952438}
    widths = {"a": 0.70111, "b": 0.64463, "c": 0.62048, "d": 0.82213}
    for name, rating in found.ratings.items():
        assert rating.estimate == pytest.approx(theirs[name], abs=1e-7)
        # ours has Student's t (0.6 % at 187 comparisons), gives back what the fit took from the
        # residuals, and is no narrower than independent comparisons are, which binds for "c"
        assert 1.006 < (rating.high - rating.low) / widths[name] < 1.06
