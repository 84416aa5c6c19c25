"""Scorers that ask a server: strict reading, typed failures, no key kept."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recast_eval.errors import ConfigError, MissingError
from recast_eval.records import Failed, Scored
from recast_eval.scorers import SCORERS
from recast_eval.scorers.conformance import cases
from recast_eval.scorers.models.unified_reward import read_grades
from recast_eval.scorers.models.vlm_pointwise import read_score
from tests.support.judge_server import JudgeServer, Question, Script

GRADES = "Alignment Score (1-5): {}\nCoherence Score (1-5): {}\nStyle Score (1-5): {}"


def graded(question: Question) -> str:
    """A grade that belongs to picture and text."""
    parts = [round(1 + 4 * question.draw(axis), 3) for axis in "acs"]
    return GRADES.format(*parts)


def scored(question: Question) -> str:
    return json.dumps({"score": 1 + int(9 * question.draw("s"))})


REPLIES: dict[str, Callable[[Question], str]] = {"unified-reward": graded, "vlm-pointwise": scored}


@pytest.fixture(scope="module", params=sorted(REPLIES))
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, JudgeServer]]:
    with JudgeServer(Script(replay=REPLIES[request.param], models=["grader"])) as server:
        server.keep_bodies = True
        yield request.param, server


def build(name: str, server: JudgeServer, model: str = "grader") -> Any:
    return SCORERS.load(name).build(weights=f"{server.url}#{model}")


def test_the_prompt_arrives_whole_and_the_card_names_server_and_model(
    served: tuple[str, JudgeServer],
) -> None:
    name, server = served
    scorer = build(name, server)
    given = cases(['say {prompt} and "quotes"'])
    scorer(given.images[:1], given.prompts[:1])
    picture, text = server.bodies[-1]["messages"][0]["content"]
    assert given.prompts[0] in text["text"]
    assert picture["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert scorer.card.weights == f"{server.url}#grader"
    assert scorer.card.digest() != SCORERS.load(name).card.digest()


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        (GRADES.format(1, 2, 3), 2.0),
        (GRADES.format("5.0", "4.5", "2.5") + "\n\n", 4.0),
        (GRADES.format(0, 2, 3), None),
        (GRADES.format(1, 2, 5.1), None),
        (GRADES.format(-1, 2, 3), None),
        (GRADES.format("nan", 2, 3), None),
        (GRADES.format("4/5", 2, 3), None),
        ("Sure! Here it is:\n" + GRADES.format(1, 2, 3), None),
        (GRADES.format(1, 2, 3) + "\nStyle Score (1-5): 5", None),
        ("Alignment Score (1-5): 3\nStyle Score (1-5): 3", None),
        ("A lovely picture, I would say 4 of 5.", None),
        ("", None),
    ],
)
def test_grades_are_read_to_the_letter(reply: str, value: float | None) -> None:
    got = read_grades(reply)
    if value is None:
        assert isinstance(got, Failed)
        assert got.reason == "parse"
    else:
        assert isinstance(got, Scored)
        assert got.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('{"score": 7}', 7.0),
        ('```json\n{"score": 7.5}\n```', 7.5),
        ('{"score": 0}', None),
        ('{"score": 11}', None),
        ('{"score": "7"}', None),
        ('{"score": true}', None),
        ('{"score": NaN}', None),
        ('{"score": 7, "note": "x"}', None),
        ('I give {"score": 7}', None),
        ("[" * 9000, None),
        ("7", None),
    ],
)
def test_a_score_is_read_to_the_letter(reply: str, value: float | None) -> None:
    got = read_score(reply)
    if value is None:
        assert isinstance(got, Failed)
        assert got.reason == "parse"
    else:
        assert isinstance(got, Scored)
        assert got.value == value


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (Script(refuse=1.0), "refusal"),
        (Script(malformed=1.0), "parse"),
        (Script(filtered=1.0), "rejected"),
        (Script(reject={"max_tokens": "no", "max_completion_tokens": "no"}), "rejected"),
        (Script(reject={"messages": "not here"}), "rejected"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_goes_wrong_has_a_name(script: Script, reason: str) -> None:
    given = cases(["a dog"])
    with JudgeServer(script) as server:
        got = build("vlm-pointwise", server, "mock")(given.images[:2], given.prompts[:2])
    assert [getattr(g, "reason", "scored") for g in got] == [reason] * 2


def test_a_busy_and_broken_server_is_asked_again() -> None:
    given = cases(["a dog"])
    script = Script(replay=scored, busy=0.5, drop=0.4, retry_after=["0"])
    with JudgeServer(script) as server:
        got = build("vlm-pointwise", server, "mock")(*given)
    assert all(isinstance(g, Scored) for g in got), got


def test_a_server_that_dies_gives_typed_failures() -> None:
    from recast_eval.scorers.models.vlm_pointwise import CARD, QUESTION
    from recast_eval.scorers.vlm import Endpoint, VlmScorer

    given = cases(["a dog"])
    with JudgeServer(Script()) as server:
        end = Endpoint(server.url, "mock")
        scorer = VlmScorer(CARD, end, QUESTION, read_score, attempts=1)
    got = scorer(given.images[:1], given.prompts[:1])
    assert isinstance(got[0], Failed)
    assert got[0].reason == "transport"


def test_wrong_endpoints_are_refused_before_any_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SCORERS.load("vlm-pointwise")
    monkeypatch.delenv("RECAST_VLM_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secretsecret")
    with pytest.raises(MissingError, match="RECAST_VLM_URL"):
        spec.build()
    with pytest.raises(MissingError, match="belongs in OPENAI_API_KEY"):
        spec.build(weights="http://me:pw@127.0.0.1:1/v1#m")
    with JudgeServer(Script(key="another")) as server:
        with pytest.raises(MissingError, match="refuses the key") as caught:
            spec.build(weights=f"{server.url}#mock")
        assert "secretsecret" not in str(caught.value)
        server.script.key = None
        with pytest.raises(MissingError, match="serves mock, not other"):
            spec.build(weights=f"{server.url}#other")
        server.script.models = None  # a server that lists nothing may still answer
        scorer = spec.build(weights=f"{server.url}#other")
        assert "secretsecret" not in repr(scorer.card)
        server.script.key = "another"
        given = cases(["a dog"])
        got = scorer(given.images[:1], given.prompts[:1])
        assert got[0].reason == "denied"
        assert "secretsecret" not in got[0].detail
        server.script.key, server.script.replay = None, lambda question: "you sent sk-secretsecret"
        got = scorer(given.images[:1], given.prompts[:1])
        assert got[0].reason == "parse"
        assert "secretsecret" not in got[0].detail
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secretsecret\n")
        with pytest.raises(ConfigError, match="OPENAI_API_KEY: the key holds"):
            spec.build(weights=f"{server.url}#mock")


def test_another_question_is_another_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "question.txt"
    with JudgeServer(Script(replay=graded)) as server:
        plain = build("unified-reward", server, "mock")
        monkeypatch.setenv("RECAST_UNIFIED_REWARD_QUESTION", str(file))
        with pytest.raises(MissingError, match="QUESTION"):
            build("unified-reward", server, "mock")
        file.write_text("no slot")
        with pytest.raises(MissingError, match="has no"):
            build("unified-reward", server, "mock")
        file.write_text("Grade [{prompt}]")
        assert build("unified-reward", server, "mock").card.digest() != plain.card.digest()


REFUSALS: dict[str, dict[str, str]] = {
    "max_tokens": {"max_tokens": "use max_completion_tokens instead"},
    "temperature": {"temperature": "only the default (1) value"},
    "both": {"max_tokens": "no", "temperature": "does not support 0"},
}


@pytest.mark.parametrize("refusal", sorted(REFUSALS))
def test_what_a_model_refuses_is_learnt_once_and_left_out(refusal: str) -> None:
    given = cases(["a dog"])
    with JudgeServer(Script(replay=scored, reject=REFUSALS[refusal])) as server:
        server.keep_bodies = True
        scorer = build("vlm-pointwise", server, "mock")
        first = scorer(given.images[:1], given.prompts[:1])
        tries = len(server.bodies)
        rest = scorer(given.images[1:], given.prompts[1:])
        assert all(isinstance(g, Scored) for g in [*first, *rest]), [*first, *rest]
        assert tries == 1 + len(REFUSALS[refusal])
        assert len(server.bodies) == tries + len(given.images) - 1, "asked again what was known"
        without = "temperature" in REFUSALS[refusal]
        assert {g.detail.get("without") for g in rest} == {"temperature" if without else None}
        assert not REFUSALS[refusal].keys() & server.bodies[-1].keys()
        assert {"max_tokens", "max_completion_tokens"} & server.bodies[-1].keys()


def test_many_questions_at_once_learn_the_same() -> None:
    given = cases(["a dog"])
    with JudgeServer(Script(replay=scored, reject=REFUSALS["both"], delay_s=0.05)) as server:
        got = build("vlm-pointwise", server, "mock")(given.images * 3, given.prompts * 3)
    assert all(isinstance(g, Scored) for g in got), got


def test_a_cut_reply_raises_the_limit_once_and_for_all() -> None:
    given = cases(["a dog"])
    with JudgeServer(Script(truncate=1.0)) as server:
        server.keep_bodies = True
        scorer = build("vlm-pointwise", server, "mock")
        got = [*scorer(given.images[:1], given.prompts[:1])]
        got += scorer(given.images[1:2], given.prompts[1:2])
        assert [b["max_tokens"] for b in server.bodies] == [256, 4096, 4096]
    assert [getattr(g, "reason", "") for g in got] == ["parse"] * 2  # whole, but no grade
