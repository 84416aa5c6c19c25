"""The audit must see through judges whose rule is known."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from typer.testing import CliRunner

import recast_eval.commands
from recast_eval.console import build_app
from recast_eval.errors import ConfigError, DataError
from recast_eval.judging.audit import audit
from recast_eval.judging.audit_null import judges_to_ask
from recast_eval.judging.audit_pictures import brightness, saturation, sharpness
from recast_eval.judging.audit_records import AuditRecord, JudgeAudit, Measured, NotMeasured, Vote
from recast_eval.judging.decide import combine_orders, compare_grades
from recast_eval.judging.records import Choice, OrderRecord, VerdictRecord
from recast_eval.judging.records import Vote as JurorVote
from recast_eval.records import Failed, Scored, ScoreRecord, append_record, read_json

Rule = Callable[[str, str, int], str | None]
"""(first model, second model, prompt number) -> winner, or None for a tie."""

AXES = ("overall",)


def verdict(
    rule: Rule, number: int, *, models: tuple[str, str] = ("a", "b"), repeat: int = 0
) -> VerdictRecord:
    """What a judge with this rule says of a pair, both orders asked."""
    orders = []
    for first, second in (models, models[::-1]):
        winner = rule(first, second, number)
        choice = Choice(state="tie") if winner is None else Choice(state="win", winner=winner)
        orders.append(OrderRecord(first=first, second=second, verdict={"overall": choice}))
    return VerdictRecord(
        judge="pairwise-v1@test",
        judge_digest="0" * 16,
        base_url="http://127.0.0.1:1/v1",
        prompt_id=f"p{number}",
        prompt="a cat",
        sample=0,
        repeat=repeat,
        model_a=models[0],
        model_b=models[1],
        image_a=None,
        image_b=None,
        axes=combine_orders(AXES, orders, models[0]),
        orders=orders,
    )


def write(folder: Path, records: list[VerdictRecord]) -> None:
    for record in records:
        append_record(folder / "verdicts.jsonl", record)


def audited(folder: Path, rule: Rule, prompts: int = 60) -> JudgeAudit:
    write(folder, [verdict(rule, n) for n in range(prompts)])
    return audit(folder).judges[0]


def value(found: object) -> float:
    assert isinstance(found, Measured), found
    return found.estimate


def coin(number: int, salt: int, chance: float = 0.5) -> bool:
    return bool(np.random.default_rng([salt, number]).random() < chance)


def truthful(first: str, second: str, number: int) -> str:
    """Prefers a on two prompts of three, whatever the order."""
    return "a" if number % 3 else "b"


def test_an_always_first_judge_is_uninformative(tmp_path: Path) -> None:
    found = audited(tmp_path, lambda first, second, n: first)
    assert found.level == "uninformative"
    assert found.verdict.startswith("uninformative: it names the first picture in 100 %")
    assert found.position is not None
    assert value(found.position.first_slot) == 1
    assert value(found.position.flips) == 1
    assert found.position.flips.low < 1  # type: ignore[union-attr]


def test_an_always_second_judge_is_uninformative(tmp_path: Path) -> None:
    found = audited(tmp_path, lambda first, second, n: second)
    assert found.level == "uninformative"
    assert "names the second picture in 100 %" in found.verdict


def test_a_coin_is_uninformative(tmp_path: Path) -> None:
    found = audited(
        tmp_path, lambda first, second, n: first if coin(n, ord(first)) else second, 200
    )
    assert found.level == "uninformative"
    assert "no better than chance" in found.verdict


def test_a_judge_that_only_ties_is_uninformative(tmp_path: Path) -> None:
    assert "a tie" in audited(tmp_path, lambda *_: None).verdict


def test_a_steady_judge_is_trusted(tmp_path: Path) -> None:
    found = audited(tmp_path, truthful)
    assert found.level == "trust it"
    assert "60 of 60 pairs scored" in found.verdict
    assert isinstance(found.repeats, NotMeasured)


def test_a_judge_with_some_flips_is_trusted_with_care(tmp_path: Path) -> None:
    def rule(first: str, second: str, n: int) -> str:
        return first if coin(n, 5, 0.35) else truthful(first, second, n)

    found = audited(tmp_path, rule, 150)
    assert found.level == "trust it with care"
    assert "flip when the pictures are swapped" in found.verdict


def test_few_prompts_ask_for_care(tmp_path: Path) -> None:
    found = audited(tmp_path, truthful, 12)
    assert found.level == "trust it with care"
    assert "only 12 prompts" in found.verdict


def test_an_outage_is_uninformative_and_a_gap_asks_for_care(tmp_path: Path) -> None:
    records = [verdict(truthful, n) for n in range(60)]
    failed = {"overall": {"state": "unscored", "reason": "transport"}}
    none = VerdictRecord.model_validate(records[0].model_dump() | {"axes": failed, "orders": []})
    write(tmp_path, [none.model_copy(update={"prompt_id": f"p{n}"}) for n in range(60)])
    assert audit(tmp_path).judges[0].verdict == "uninformative: 0 of 60 pairs scored"
    (tmp_path / "verdicts.jsonl").unlink()
    write(
        tmp_path,
        [*records[:50], *(none.model_copy(update={"prompt_id": f"x{n}"}) for n in range(10))],
    )
    assert "only 50 of 60 pairs scored" in audit(tmp_path).judges[0].verdict


def test_a_judge_of_single_images_has_no_position(tmp_path: Path) -> None:
    record = verdict(truthful, 0)
    grades = compare_grades(AXES, {"a": {"overall": 3.0}, "b": {"overall": 2.0}}, "a", "b")
    for n in range(50):
        update = {"prompt_id": f"p{n}", "orders": [], "order_free": True, "axes": grades}
        append_record(tmp_path / "verdicts.jsonl", record.model_copy(update=update))
    found = audit(tmp_path).judges[0]
    assert found.position is None
    assert found.level == "trust it with care"
    assert "nothing independent to check it against" in found.verdict
    for n in range(50):
        append_record(tmp_path / "votes.jsonl", vote("x", n, "a" if n % 9 else "b"))
    assert audit(tmp_path).judges[0].level == "trust it"


def test_a_juror_is_no_witness_for_its_jury(tmp_path: Path) -> None:
    record = verdict(truthful, 0)
    grades = compare_grades(AXES, {"a": {"overall": 3.0}, "b": {"overall": 2.0}}, "a", "b")
    votes = [JurorVote(judge="held", family="f", axes=grades)]
    for n in range(50):
        update = {"prompt_id": f"p{n}", "orders": [], "order_free": True, "votes": votes}
        append_record(tmp_path / "verdicts.jsonl", record.model_copy(update=update))
        for model in "ab":
            row = {"prompt_id": f"p{n}", "sample": 0, "image": "0" * 64, "scorer": "held"}
            score = Scored(value=float(model == "a"))
            append_record(
                tmp_path / "scores.jsonl",
                ScoreRecord(model=model, scorer_digest="d", role="heldout", outcome=score, **row),  # type: ignore[arg-type]
            )
    found = audit(tmp_path).judges[0]
    assert found.scorers == []
    assert "nothing independent" in found.verdict


def test_repeats_that_differ_ask_for_care(tmp_path: Path) -> None:
    def moody(repeat: int) -> Rule:
        return lambda first, second, n: "a" if coin(n, repeat, 0.6) else "b"

    write(tmp_path, [verdict(moody(r), n, repeat=r) for n in range(60) for r in range(3)])
    found = audit(tmp_path).judges[0]
    assert value(found.repeats) < 0.3
    assert "asked again it answers otherwise" in found.verdict
    assert found.n_total == 60  # repeats are no further evidence


def pictures(folder: Path, prompts: int) -> dict[tuple[str, int], float]:
    """Grey images of random brightness; returns them by (model, prompt)."""
    found = {}
    rng = np.random.default_rng(0)
    for model in "ab":
        out = folder / "images" / model
        out.mkdir(parents=True)
        lines = []
        for n in range(prompts):
            grey = int(rng.integers(40, 215))
            found[model, n] = grey
            noise = rng.integers(-6, 7, (24, 24, 3))
            Image.fromarray(np.clip(grey + noise, 0, 255).astype(np.uint8)).save(out / f"{n}.png")
            lines.append(json.dumps({"file_name": f"{n}.png", "prompt": "a", "prompt_id": f"p{n}"}))
        (out / "metadata.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return found


def test_a_judge_of_brightness_is_found_out(tmp_path: Path) -> None:
    grey = pictures(tmp_path, 150)

    def rule(first: str, second: str, n: int) -> str:
        if coin(n, 1, 0.15):
            return "a"
        return max("ab", key=lambda model: grey[model, n])

    found = audited(tmp_path, rule, 150)
    bright = next(p for p in found.properties if p.name == "brightness")
    assert value(bright.higher_wins) > 0.85
    assert bright.p_holm < 1e-3
    assert value(bright.slope) > 1
    assert found.level == "trust it with care"
    assert "it prefers more brightness" in found.verdict
    others = [p for p in found.properties if p.name in ("megapixels (log)", "aspect ratio (log)")]
    assert all(isinstance(p.higher_wins, NotMeasured) for p in others)


def test_properties_have_closed_forms() -> None:
    red = np.zeros((8, 8, 3), np.uint8)
    red[..., 0] = 255
    grey = np.full((8, 8, 3), 100, np.uint8)
    assert brightness(red) == pytest.approx(0.299)
    assert (saturation(red), saturation(grey), saturation(grey * 0)) == (1, 0, 0)
    assert sharpness(grey) == 0
    board = np.indices((8, 8)).sum(axis=0)[..., None] % 2 * np.full(3, 255)
    assert sharpness(board.astype(np.uint8)) > 10


def test_scorers_that_disagree_are_named_with_their_worst_cases(tmp_path: Path) -> None:
    for n in range(60):
        for model in "ab":
            against = float((truthful("a", "b", n) != model) * (2 + n))
            outcome = Failed(reason="damaged") if n == 0 else Scored(value=against)
            row = {"prompt_id": f"p{n}", "sample": 0, "image": "0" * 64, "scorer": "held"}
            append_record(
                tmp_path / "scores.jsonl",
                ScoreRecord(model=model, scorer_digest="d", role="heldout", outcome=outcome, **row),  # type: ignore[arg-type]
            )
    found = audited(tmp_path, truthful)
    assert "contradicts held-out held" in found.verdict
    scorer = found.scorers[0]
    assert value(scorer.same_side) == 0
    assert value(scorer.kappa) < -0.5
    assert scorer.same_side.n == 59  # type: ignore[union-attr]
    assert len(scorer.contradictions) == 8
    assert "'p59'" in scorer.contradictions[0]


def vote(voter: str, n: int, winner: str | None) -> Vote:
    names = {"model_a": "b", "model_b": "a", "axis": "overall", "first": "a", "page": "x"}
    return Vote(voter=voter, prompt_id=f"p{n}", sample=0, winner=winner, **names)  # type: ignore[arg-type]


def test_people_join_by_majority(tmp_path: Path) -> None:
    for n in range(50):
        right = truthful("a", "b", n)
        for voter in ("x", "y", "z"):
            wrong = voter == "z" and n % 5 == 0
            winner = ("b" if right == "a" else "a") if wrong else right
            append_record(tmp_path / "votes.jsonl", vote(voter, n, winner))
    human = audited(tmp_path, truthful).human
    assert human is not None
    assert (human.voters, human.votes) == (3, 150)
    assert value(human.accuracy) == 1
    assert value(human.kappa) == value(human.alpha) == 1
    assert 0.5 < value(human.among_people) < 1


def test_a_judge_that_people_contradict_is_uninformative(tmp_path: Path) -> None:
    for n in range(50):
        against = "b" if truthful("a", "b", n) == "a" else "a"
        append_record(tmp_path / "votes.jsonl", vote("x", n, against))
    found = audited(tmp_path, truthful)
    assert found.level == "uninformative"
    assert "people agree with 0 %" in found.verdict


def test_the_command_writes_one_line_a_judge_and_a_strict_record(tmp_path: Path) -> None:
    write(tmp_path, [verdict(lambda first, second, n: first, n) for n in range(45)])
    result = CliRunner().invoke(build_app(recast_eval.commands, ""), ["audit", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "pairwise-v1@test: uninformative: " in result.output
    record = read_json(tmp_path / "audit.json", AuditRecord)
    assert [one.level for one in record.judges] == ["uninformative"]
    text = (tmp_path / "audit.json").read_text("utf-8")
    json.loads(text, parse_constant=lambda name: pytest.fail(name))


def test_an_evaluation_without_verdicts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="judge first"):
        audit(tmp_path)


def test_null_tests_go_where_the_verdicts_came_from() -> None:
    records = [verdict(truthful, 0)]
    asked = judges_to_ask(records, [], None, None)
    assert [(a.judge, a.card, a.model, a.base_url) for a in asked] == [
        ("pairwise-v1@test", "pairwise-v1", "test", "http://127.0.0.1:1/v1")
    ]
    with pytest.raises(ConfigError, match="pairwise-strict-v1"):
        judges_to_ask(records, ["pairwise-strict-v1"], None, None)


def test_drawn_words_have_an_area_and_a_plain_picture_has_none() -> None:
    pytest.importorskip("rapidocr_onnxruntime")
    from recast_eval.judging.audit_text import text_area

    area = text_area()
    plain = Image.new("RGB", (256, 256), "skyblue")
    assert area(np.asarray(plain)) == 0
    ImageDraw.Draw(plain).text((20, 90), "HELLO", font=ImageFont.load_default(60), fill="black")
    assert 0.01 < area(np.asarray(plain)) < 0.3
