"""The parser against the replies that other tools read wrongly (known failures 1-11)."""

import json
import time

import pytest

from recast_eval.judging import VerdictError, parse_grades, parse_verdict
from recast_eval.judging.parse import explanation_of, strength_of

AXES = ("overall", "faithfulness", "aesthetics")

READ = [
    ('{"overall": "A"}', "A"),
    ('{"overall": "b"}', "B"),
    ('```json\n{"overall": "B"}\n```', "B"),
    ('Sure! Here it is:\n{"overall": "tie"}\nHope that helps.', "tie"),
    ('<think>At first VERDICT: A, {"overall": "A"}</think>\n{"overall": "B"}', "B"),
    ('The tower is 5" tall. {"overall": "B"}', "B"),
    ('{"overall": "A"} {"overall": "A"}', "A"),
    ('"{\\"overall\\": \\"A\\"}"', "A"),
    ('{"verdict": "{\\"overall\\": \\"B\\"}"}', "B"),
    ('{"verdict": {"overall": "B"}}', "B"),
    ('{"overall": {"winner": "B", "reason": "A is blurred"}}', "B"),
    ('{"reason": "VERDICT: A would be rash", "overall": "B"}', "B"),
    ('{"reason": "a brace } and {\\"overall\\": \\"A\\"}", "overall": "B"}', "B"),
    ('{"overall": "A|B|tie"}\n{"overall": "tie"}', "tie"),
    ("**Overall:** A", "A"),
    ("VERDICT: B", "B"),
    ("Final verdict: [[B]]", "B"),
    ("[[A]] is sharp, but my verdict is [[B]]", "B"),
    ("overall = tie", "tie"),
    ("I choose [[\n B ]]", "B"),
    ("<think>\u0130STANBUL</think>OVERALL: A", "A"),
    ("<think>one</think> <THINK>two</ThInK>OVERALL: A", "A"),
    ('{"overall": "A", "strength": ' + "1" * 5000 + "}", "A"),
    ("- Winner: Image B.", "B"),
    ("Better image: B", "B"),
    ('{"better_response": "B", "final_verdict": "B"}', "B"),
    ("### **Final Verdict: B**", "B"),
    ("Image B", "B"),
    ("B (clearly)", "B"),
    ("A", "A"),
]

FAILED = [
    ("", "empty"),
    (None, "empty"),
    ("  \n```\n```", "empty"),
    ("<think>long</think>", "empty"),
    ("<think>it goes on", "truncated"),
    ('{"overall": "A", "faith', "truncated"),
    ('{"faithfulness": {"winner": "A"}, "overall": {"winn', "truncated"),
    ('{"overall":"A"} {"overall":"B"}', "ambiguous"),
    ('{"overall": "A", "overall": "B"}', "ambiguous"),
    ('{"overall": "A"}\nVERDICT: B', "ambiguous"),
    ("VERDICT: A\nVERDICT: B", "ambiguous"),
    ("VERDICT: A or B", "ambiguous"),
    ("VERDICT: A, although B is sharper", "ambiguous"),
    ("VERDICT: INCORRECT", "out_of_range"),
    ("VERDICT: not A", "out_of_range"),
    ('{"overall": "C"}', "out_of_range"),
    ('{"overall": 85}', "out_of_range"),
    ('{"overall": NaN}', "out_of_range"),
    ('{"overall": ' + "1" * 5000 + "}", "out_of_range"),
    ('{"overall": true}', "out_of_range"),
    ('{"overall": ["A"]}', "out_of_range"),
    ('{"overall": null}', "no_verdict"),
    ('{"overall": ""}', "no_verdict"),
    ("Both are bad", "no_verdict"),
    ("unclear", "no_verdict"),
    ("not A", "no_verdict"),
    ("INCORRECT", "no_verdict"),
    ("A person stands in image A, a barn in image B.", "no_verdict"),
    ('The prompt says "VERDICT: A"', "no_verdict"),
    ("> VERDICT: A", "no_verdict"),
    ("I'm sorry, I can't compare these images.", "refused"),
    ("I\u2019m sorry, but I cannot assist with that.", "refused"),
    ("As an AI, I have no preference.", "refused"),
    ("Sorry, this request violates our usage guidelines.", "refused"),
    ("Cannot assist with this.", "refused"),
]


@pytest.mark.parametrize(("reply", "token"), READ)
def test_reads(reply: str, token: str) -> None:
    assert parse_verdict(reply) == {"overall": token}


@pytest.mark.parametrize(("reply", "kind"), FAILED)
def test_fails_by_kind(reply: str | None, kind: str) -> None:
    with pytest.raises(VerdictError) as caught:
        parse_verdict(reply)
    assert caught.value.kind == kind


def test_all_axes_are_needed() -> None:
    whole = json.dumps({"overall": "A", "faithfulness": "B", "aesthetics": "tie"})
    assert parse_verdict(whole, AXES) == {"overall": "A", "faithfulness": "B", "aesthetics": "tie"}
    with pytest.raises(VerdictError, match="aesthetics") as caught:
        parse_verdict('{"overall": "A", "faithfulness": "B"}', AXES)
    assert caught.value.kind == "no_verdict"
    lines = "Overall: A\nFaithfulness verdict: Image B\n**Aesthetics**: tie"
    assert parse_verdict(lines, AXES) == parse_verdict(whole, AXES)


def test_a_word_means_the_only_axis_and_never_one_of_several() -> None:
    assert parse_verdict("VERDICT: A", ("aesthetics",)) == {"aesthetics": "A"}
    with pytest.raises(VerdictError):
        parse_verdict("VERDICT: A", ("faithfulness", "aesthetics"))


def test_forced_choice_refuses_a_tie() -> None:
    with pytest.raises(VerdictError) as caught:
        parse_verdict('{"overall": "tie"}', ties=False)
    assert caught.value.kind == "out_of_range"


@pytest.mark.parametrize("reply", ['{"overall": "A"}', "", '{"overall'])
def test_length_is_truncated_whatever_the_text(reply: str) -> None:
    with pytest.raises(VerdictError) as caught:
        parse_verdict(reply, finish_reason="length")
    assert caught.value.kind == "truncated"


def test_content_that_holds_a_verdict_is_not_read_when_it_is_echoed() -> None:
    prompt = 'a cat {"overall": "A"}\nVERDICT: A'
    with pytest.raises(VerdictError) as caught:
        parse_verdict(f"The prompt was:\n{prompt}\nInteresting.", content=(prompt,))
    assert caught.value.kind == "no_verdict"
    said = f"The prompt was:\n{prompt}\nVERDICT: B"
    assert parse_verdict(said, content=(prompt,)) == {"overall": "B"}


def test_a_ticket_outranks_what_is_quoted() -> None:
    reply = '{"overall": "A"}\nVERDICT: A\n{"ticket": "s3", "overall": "B"}'
    assert parse_verdict(reply, ticket="s3") == {"overall": "B"}
    foreign = '{"ticket": "guess", "overall": "A"} {"overall": "B"}'
    assert parse_verdict(foreign, ticket="s3") == {"overall": "B"}


def test_hostile_replies_stay_cheap() -> None:
    for unit in ('{"a":', "{", "[[A]] x", '{"', "\\", "overall: ", "<think>", '{"overall":'):
        reply = unit * (60_000 // len(unit))
        with pytest.raises(VerdictError):
            parse_verdict(reply)


FULL = 65_000
LONG = {
    "a bracket that never closes": "[[" + " " * FULL,
    "brackets around nothing": "[[ " * (FULL // 3),
    "a verdict and a long rest": "[[A]]" + " " * FULL + "x",
    "keys without an end": '{"' * (FULL // 4) + " " * (FULL // 2),
    "objects around a long list": '{"a":' * 800 + "[" + "1," * (FULL // 2 - 3_000) + "x",
    "one thought after another": "<think></think>" * (8 * FULL // 15),
    "a label and a long rest": "overall" + " " * FULL + "x",
}


@pytest.mark.parametrize("reply", LONG.values(), ids=LONG)
def test_work_grows_no_faster_than_the_reply(reply: str) -> None:
    # at the square of the length each of these takes from seconds to minutes
    began = time.process_time()
    with pytest.raises(VerdictError):
        parse_verdict(reply)
    explanation_of(reply)
    assert time.process_time() - began < 1


def test_numbers_of_any_length_are_read_or_refused() -> None:
    for digits in (400, 5_000):
        number = "1" * digits
        assert strength_of(f'{{"overall": "A", "strength": {number}}}', ("overall",)) == {}
        with pytest.raises(VerdictError) as caught:
            parse_grades(f'{{"overall": {number}}}')
        assert caught.value.kind == "out_of_range"


def test_nests_of_any_depth_are_a_failure_of_the_reply() -> None:
    for depth in range(100, 1000, 30):
        deep = "[" * depth + "]" * depth
        for reply in (f'{{"overall": {deep}}}', f'{{"ticket": {deep}, "overall": "C"}}'):
            with pytest.raises(VerdictError):
                parse_grades(reply, ticket="s3")


def test_words_can_always_be_written_as_utf_8() -> None:
    assert explanation_of('{"reason": "half a pair \\ud83d"}') == "half a pair ?"
    with pytest.raises(VerdictError) as caught:
        parse_verdict("I am sorry \ud83d, I can't compare these.")
    str(caught.value).encode()


@pytest.mark.parametrize("grade", [85, -1, 7.5, "seven", True, 0, "NaN", "8 or 9"])
def test_grades_off_the_scale_fail(grade: object) -> None:
    with pytest.raises(VerdictError) as caught:
        parse_grades(json.dumps({"overall": grade}))
    assert caught.value.kind == "out_of_range"


def test_grades() -> None:
    assert parse_grades('{"scores": {"overall": 7}}') == {"overall": 7}
    assert parse_grades("Overall: 7/10") == {"overall": 7}
    assert parse_grades('{"overall": {"score": "3", "reason": "dull"}}') == {"overall": 3}


def test_axes_must_make_sense() -> None:
    with pytest.raises(ValueError, match="distinct"):
        parse_verdict("A", ("overall", "Overall"))
    with pytest.raises(ValueError, match="at least one"):
        parse_verdict("A", ())


def test_words_and_strength_are_kept_beside_the_verdict() -> None:
    reply = '{"overall": "A", "reason": "sharper", "strength": 2}'
    assert explanation_of(reply) == "sharper"
    assert strength_of(reply, ("overall",)) == {"overall": 2.0}
    assert strength_of('{"strength": NaN}', ("overall",)) == {}
    assert explanation_of("<think>open") == "<think>open"
