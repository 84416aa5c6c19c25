"""Prompt sets: made from a seed, split without overlap, read strictly."""

import json
from pathlib import Path

import pytest

from recast_eval.content import content
from recast_eval.content.prompts import SPLITS, load_prompt_set, prompt_sets
from recast_eval.errors import DataError, MissingError
from recast_eval.scorers.world import parse_caption
from recast_eval.scorers.world.prompt_sets import STARTER_SETS, make_ocr


@pytest.mark.parametrize("name", list(STARTER_SETS))
def test_shipped_files_are_what_the_generator_makes(name: str) -> None:
    made = STARTER_SETS[name]()
    assert set(made) == set(SPLITS)
    for split, rows in made.items():
        text = (content("prompts") / "sets" / name / f"{split}.jsonl").read_text("utf-8")
        assert [json.loads(line) for line in text.splitlines()] == rows


@pytest.mark.parametrize("name", list(STARTER_SETS))
def test_splits_share_no_caption_and_every_caption_has_a_scene(name: str) -> None:
    sets = [load_prompt_set(name, split) for split in SPLITS]
    captions = [p.prompt for s in sets for p in s.prompts]
    assert len(set(captions)) == len(captions)
    ids = [p.prompt_id for s in sets for p in s.prompts]
    assert len(set(ids)) == len(ids)
    for prompt_set in sets:
        for prompt in prompt_set.prompts:
            scene = parse_caption(prompt.prompt)
            assert scene is not None
            assert scene.family == prompt.category


def test_no_word_of_the_test_split_was_trained_on() -> None:
    words = {}
    for split, rows in make_ocr().items():
        scenes = [parse_caption(r["prompt"]) for r in rows]
        words[split] = {s.word.text for s in scenes if s and s.word}
    assert not words["test"] & (words["train"] | words["validation"])


def test_another_seed_makes_another_set() -> None:
    assert make_ocr(1)["test"] != make_ocr(2)["test"]
    assert make_ocr(1) == make_ocr(1)


def test_sets_are_listed_with_their_counts() -> None:
    cards = prompt_sets()
    assert {"starter-geneval", "starter-ocr"} <= set(cards)
    assert cards["starter-ocr"].splits["test"] == 96


def parquet(path: Path, **columns: list[object]) -> str:
    import datasets

    datasets.Dataset.from_dict(columns).to_parquet(str(path))
    return str(path)


def test_whole_numbers_are_ids_in_a_parquet_file(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", prompt_id=[0, 1, 2], prompt=["a", "b", "c"])
    assert [p.prompt_id for p in load_prompt_set(path).prompts] == ["0", "1", "2"]


def test_empty_cells_of_a_parquet_file_are_left_out(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "a.parquet",
        prompt_id=["x", "", None],
        prompt=["NA", "null", "007"],
        category=[None, "", "y"],
    )
    found = load_prompt_set(path).prompts
    assert [p.prompt_id for p in found] == ["x", "00002", "00003"]
    assert [p.prompt for p in found] == ["NA", "null", "007"]
    assert [p.category for p in found] == ["other", "other", "y"]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"prompt": [1.5, float("nan")]}, r"row 1: prompt is 1.5 \(float\), must be text"),
        ({"prompt": ["a"], "category": [float("nan")]}, r"row 1: category is nan"),
        ({"prompt": [["a", "b"], ["c"]]}, r"row 1: prompt is \['a', 'b'\] \(list\)"),
        ({"prompt": ["a", "b"], "prompt_id": [1.0, 2.0]}, r"prompt_id is 1.0.*a whole number"),
        ({"prompt": ["a"], "prompt_id": [True]}, r"prompt_id is True \(bool\)"),
        ({"prompt": ["a", None]}, r"prompt: .*one must be called prompt"),
    ],
)
def test_cells_that_are_no_text_are_named(
    columns: dict[str, list[object]], says: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=says):
        load_prompt_set(parquet(tmp_path / "a.parquet", **columns))


def test_a_name_too_long_for_the_system_is_no_set() -> None:
    with pytest.raises(MissingError, match=r"no prompt set 'aaa.*\.\.\.'.*did you mean"):
        load_prompt_set("a" * 300)


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    return path


GOOD = '{"prompt_id": "a", "prompt": "a red circle"}'


def test_a_last_line_needs_no_line_feed(tmp_path: Path) -> None:
    path = write(tmp_path / "own.jsonl", GOOD, end="")
    assert [p.prompt for p in load_prompt_set(str(path)).prompts] == ["a red circle"]


def test_only_line_feeds_split_and_odd_texts_stay(tmp_path: Path) -> None:
    odd = ["NA", "null", "007", "1e5", 'a, "b"', "x\u2028y", "x\u0085y", "x\x0by", "naïve café 🎈"]
    lines = [json.dumps({"prompt_id": str(i), "prompt": t}) for i, t in enumerate(odd)]
    raw = [
        json.dumps({"prompt_id": f"r{i}", "prompt": t}, ensure_ascii=False)
        for i, t in enumerate(odd[5:7])
    ]
    loaded = load_prompt_set(str(write(tmp_path / "own.jsonl", *lines, *raw)))
    assert [p.prompt for p in loaded.prompts] == odd + odd[5:7]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "EOF|JSON"),
        ('{"prompt_id": "b"}', "prompt: Field required"),
        ('{"prompt_id": 7, "prompt": "x"}', "prompt_id"),
        ('{"prompt_id": "b", "prompt": ""}', "prompt"),
        ('{"prompt_id": "b", "prompt": "x", "colour": "red"}', "colour"),
    ],
)
def test_a_broken_line_is_named_with_its_value_and_what_to_write(
    line: str, says: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "own.jsonl", GOOD, line, GOOD.replace('"a"', '"c"'), "nonsense")
    with pytest.raises(DataError, match=says) as caught:
        load_prompt_set(str(path))
    message = str(caught.value)
    assert message.startswith(f"{path}:2: ")
    assert line in message
    assert "a line must read" in message
    assert "also broken: line 4" in message


def test_an_id_used_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="used by prompts 1 and 2"):
        load_prompt_set(str(write(tmp_path / "own.jsonl", GOOD, GOOD)))


@pytest.mark.parametrize("suffix", ["jsonl", "txt"])
def test_an_empty_file_is_an_error(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no prompts"):
        load_prompt_set(str(write(tmp_path / f"own.{suffix}", "")))


def test_bytes_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_bytes(b"fine\nna\xefve\n")
    with pytest.raises(DataError, match=r"own\.txt:2: not UTF-8"):
        load_prompt_set(str(path))


def test_a_text_file_is_a_set(tmp_path: Path) -> None:
    loaded = load_prompt_set(str(write(tmp_path / "own.txt", "a cat", "a dog")))
    assert [(p.prompt_id, p.prompt) for p in loaded.prompts] == [
        ("00001", "a cat"),
        ("00002", "a dog"),
    ]


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(MissingError, match="starter-geneval"):
        load_prompt_set("starter-genval")


def test_a_set_must_keep_its_cards_promise(tmp_path: Path) -> None:
    write(
        tmp_path / "card.yaml",
        "name: own",
        "version: 1",
        "what: x",
        "source: x",
        "licence: CC0",
        "splits: {test: 2}",
    )
    write(tmp_path / "test.jsonl", GOOD)
    with pytest.raises(DataError, match="1 prompts, the card says 2"):
        load_prompt_set(str(tmp_path))
    with pytest.raises(DataError, match="no split 'train'"):
        load_prompt_set(str(tmp_path), "train")
