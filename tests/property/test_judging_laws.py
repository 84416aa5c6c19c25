"""Laws of the parser and of how orders and votes combine, for any input."""

import contextlib
import json
from random import Random
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from recast_eval.judging import VerdictError, parse_grades, parse_verdict
from recast_eval.judging.decide import choices, combine_orders, jury_verdict
from recast_eval.judging.limits import Budget
from recast_eval.judging.parse import VerdictErrorKind, explanation_of, strength_of
from recast_eval.judging.records import AxisOutcome, OrderRecord, Vote

TOKENS = st.sampled_from(["A", "B", "tie"])
ODD_NUMBERS = st.one_of(
    st.integers(1, 6000).map(lambda n: "9" * n),
    st.integers(1, 6000).map(lambda n: f"1e{'9' * n}"),
    st.sampled_from(["NaN", "-Infinity", "-0", "1e400", "0." + "1" * 5000]),
)
ODD_VALUES = st.recursive(
    ODD_NUMBERS | st.sampled_from(['"A"', '"\\ud800"', "null", "true"]),
    lambda inner: (
        st.lists(inner, max_size=2).map(lambda items: f"[{','.join(items)}]")
        | inner.map(lambda value: f'{{"overall": {value}}}')
    ),
    max_leaves=4,
)
TURNED = {"A": "B", "B": "A", "tie": "tie"}
PROSE = st.text(max_size=80)
SHAPES = st.sampled_from(["json", "line", "bracket", "fence", "prefix"])


def kind_or_token(reply: str) -> str:
    try:
        return parse_verdict(reply)["overall"]
    except VerdictError as error:
        return error.kind


def spoken(shape: str, token: str) -> str:
    if shape == "line":
        return f"OVERALL: {token}"
    if shape == "bracket":
        return f"My verdict: [[{token}]]"
    text = json.dumps({"overall": token})
    return {"json": text, "fence": f"```json\n{text}\n```", "prefix": f"Well then.\n{text}"}[shape]


@given(st.dictionaries(st.sampled_from(["overall", "strength", "ticket", "reason"]), ODD_VALUES))
def test_no_json_raises_anything_but_a_verdict_error(values: dict[str, str]) -> None:
    reply = "{" + ", ".join(f'"{key}": {value}' for key, value in values.items()) + "}"
    for parse in (parse_verdict, parse_grades):
        with contextlib.suppress(VerdictError):
            parse(reply, ticket="k7")
    assert all(abs(n) < float("inf") for n in strength_of(reply, ("overall",)).values())
    explanation_of(reply).encode()


@given(SHAPES, TOKENS)
def test_swapping_the_slots_turns_the_verdict(shape: str, token: str) -> None:
    there = parse_verdict(spoken(shape, token))["overall"]
    back = parse_verdict(spoken(shape, TURNED[token]))["overall"]
    assert TURNED[there] == back


@given(SHAPES, TOKENS, SHAPES, TOKENS, PROSE, st.booleans())
def test_planted_content_can_spoil_a_verdict_but_not_turn_it(
    shape: str, said: str, other: str, planted: str, prose: str, first: bool
) -> None:
    quote = f"{prose}\n{spoken(other, planted)}\n"
    reply = f"{quote}\n{spoken(shape, said)}" if first else f"{spoken(shape, said)}\n{quote}"
    assert kind_or_token(reply) in (said, "ambiguous", "out_of_range", "truncated", "no_verdict")


@given(TOKENS, TOKENS, PROSE)
def test_a_ticketed_verdict_survives_what_is_quoted_before_it(
    said: str, planted: str, prose: str
) -> None:
    sealed = json.dumps({"ticket": "k7", "overall": said})
    quote = json.dumps({"overall": planted, "reason": prose})
    assert parse_verdict(f"{quote}\n{sealed}", ticket="k7")["overall"] == said


@given(st.text(max_size=400))
def test_any_text_is_a_verdict_or_a_typed_failure(text: str) -> None:
    assert kind_or_token(text) in {*TURNED, *get_args(VerdictErrorKind)}


@given(st.lists(st.sampled_from(["A", "B", "tie", "image", "better", "not", "."]), min_size=3))
def test_prose_is_no_verdict(words: list[str]) -> None:
    assert kind_or_token("I see that " + " ".join(words) + " on both sides") == "no_verdict"


def order(first: str, second: str, token: str) -> OrderRecord:
    return OrderRecord(
        first=first, second=second, verdict=choices({"overall": token}, first, second)
    )


@given(TOKENS, TOKENS)
def test_the_two_orders_are_one_observation(one: str, two: str) -> None:
    outcome = combine_orders(("overall",), [order("x", "y", one), order("y", "x", two)], "x")
    mirror = combine_orders(("overall",), [order("y", "x", two), order("x", "y", one)], "y")
    a, b = outcome["overall"], mirror["overall"]
    assert a.state == b.state
    assert a.winner == b.winner
    assert a.score_a is not None
    assert b.score_a is not None
    assert a.score_a + b.score_a == 1
    agree = TURNED[one] == two
    expected = (
        ("tie" if one == "tie" else "win") if agree else "tie" if "tie" in (one, two) else "flip"
    )
    assert a.state == expected
    assert a.one_tie == (("tie" in (one, two)) and not agree)


def _turned(score: float | None) -> float | None:
    return None if score is None else 1 - score


VOTES = st.lists(
    st.tuples(st.sampled_from(["f1", "f2", "f3", "f4"]), st.sampled_from([1.0, 0.5, 0.0, None])),
    max_size=7,
)


def vote(name: str, family: str, score: float | None) -> Vote:
    if score is None:
        outcome = AxisOutcome(state="unscored", reason="no_score")
    elif score == 0.5:
        outcome = AxisOutcome(state="tie", score_a=0.5)
    else:
        outcome = AxisOutcome(state="win", winner="x" if score else "y", score_a=score)
    return Vote(judge=name, family=family, axes={"overall": outcome})


@given(VOTES, st.randoms(use_true_random=False), st.integers(1, 4))
def test_a_jury_does_not_depend_on_the_order_of_its_members(
    rows: list[tuple[str, float | None]], random: Random, quorum: int
) -> None:
    votes = [vote(f"j{i}", family, score) for i, (family, score) in enumerate(rows)]
    shuffled = list(votes)
    random.shuffle(shuffled)
    here = jury_verdict(("overall",), votes, "x", "y", quorum)
    assert here == jury_verdict(("overall",), shuffled, "x", "y", quorum)
    turned = [vote(v.judge, v.family, _turned(v.axes["overall"].score_a)) for v in votes]
    mirror = jury_verdict(("overall",), turned, "x", "y", quorum)["overall"]
    if here["overall"].score_a is not None:
        assert mirror.score_a == 1 - here["overall"].score_a
    families = {family for family, score in rows if score is not None}
    assert (here["overall"].state == "unscored") == (len(families) < quorum or not families)


@given(st.lists(st.tuples(st.floats(0, 1), st.none() | st.floats(0, 1)), max_size=30))
def test_a_budget_is_never_overspent_by_honest_estimates(
    calls: list[tuple[float, float | None]],
) -> None:
    budget = Budget(3.0)
    for most, share in calls:
        if budget.reserve(most):
            budget.settle(most, None if share is None else most * share)
        assert budget.spent + budget.reserved <= 3.0 + 1e-9
