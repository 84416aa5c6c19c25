"""One door for YAML: whatever a person writes is a value or one short error, at every reader."""

from collections.abc import Callable
from pathlib import Path

import pytest

from recast_eval.content.prompts import read_card as load_prompt_card
from recast_eval.content.yaml_text import parse_yaml
from recast_eval.errors import RecastError
from recast_eval.judging.cards import load_card
from recast_train.config import read_yaml

BAD = {
    "no such date": "a: 2020-13-01",
    "a number without digits": "a: 0x_",
    "a float that is none": "a: !!float abc",
    "a time that is none": "a: !!timestamp abc",
    "too many digits": f"a: {'9' * 5000}",
    "too deep": "a: " + "[" * 3000,
    "a key twice": "{a: 1, a: 2}",
    "code": "a: !!python/object/apply:os.getcwd []",
    "open": "a: [",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_has_no_value_is_a_short_error_everywhere(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"YAML|deeply") as caught:
        parse_yaml(text)
    assert len(str(caught.value)) < 400
    path = tmp_path / "card.yaml"
    path.write_text(text, "utf-8")
    readers: tuple[tuple[Callable[[Path], object], Path], ...] = (
        (read_yaml, path),
        (lambda p: load_card(str(p)), path),
        (load_prompt_card, tmp_path),
    )
    for read, where in readers:
        with pytest.raises(RecastError, match=r"card\.yaml: ") as said:
            read(where)
        assert len(str(said.value)) < 600


def test_values() -> None:
    assert parse_yaml("a: [1, 2.5, x, null]") == {"a": [1, 2.5, "x", None]}
