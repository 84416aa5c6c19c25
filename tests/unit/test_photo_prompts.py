"""Photo prompts: made from a seed, split without overlap, read back by GenEval's grammar."""

import json

import pytest

from recast_eval.content import content
from recast_eval.content.prompts import SPLITS, load_prompt_set
from recast_eval.scorers.geneval_prompts import Wanted, parse_geneval
from recast_eval.scorers.photo_prompts import PHOTO_SETS, THINGS, make_objects
from recast_eval.scorers.text import asked_text

CLASSES = frozenset(THINGS)


@pytest.mark.parametrize("name", list(PHOTO_SETS))
def test_shipped_files_are_what_the_generator_makes(name: str) -> None:
    for split, rows in PHOTO_SETS[name]().items():
        text = (content("prompts") / "sets" / name / f"{split}.jsonl").read_text("utf-8")
        assert [json.loads(line) for line in text.splitlines()] == rows
    prompts = [p.prompt for s in SPLITS for p in load_prompt_set(name, s).prompts]
    assert len(set(prompts)) == len(prompts)


def test_every_object_prompt_is_read_back_as_its_family() -> None:
    for row in make_objects()["train"]:
        request = parse_geneval(row["prompt"], CLASSES)
        assert request is not None, row
        counting = request.objects[0].count > 1
        colored = [o.color is not None for o in request.objects]
        expected = {
            "single_object": (1, False, False, None),
            "two_object": (2, False, False, None),
            "counting": (1, True, False, None),
            "colors": (1, False, True, None),
            "color_attr": (2, False, True, None),
        }
        if row["category"] == "position":
            assert request.relation is not None
        else:
            got = (len(request.objects), counting, all(colored), request.relation)
            assert got == expected[row["category"]], row


@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [
        ("a photo of three knives", (Wanted("knife", 3),)),
        ("a photo of two benches", (Wanted("bench", 2),)),
        ("a photo of an orange", (Wanted("orange"),)),
        ("a photo of an orange orange", (Wanted("orange", color="orange"),)),
        (
            "a photo of a red stop sign and a blue cat",
            (Wanted("stop sign", 1, "red"), Wanted("cat", 1, "blue")),
        ),
    ],
)
def test_forms_that_are_easy_to_misread(prompt: str, wanted: tuple[Wanted, ...]) -> None:
    request = parse_geneval(prompt, CLASSES)
    assert request is not None
    assert request.objects == wanted


@pytest.mark.parametrize("prompt", ["", "a dog", "a photo of a unicorn", "a photo of five dogs"])
def test_other_prompts_are_not_guessed(prompt: str) -> None:
    assert parse_geneval(prompt, CLASSES) is None


def test_no_text_is_asked_for_in_two_splits() -> None:
    texts = [{asked_text(p.prompt) for p in load_prompt_set("signs", s).prompts} for s in SPLITS]
    assert not texts[0] & texts[1] | texts[0] & texts[2] | texts[1] & texts[2]
