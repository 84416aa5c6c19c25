"""docs/scorers.md says what the code says: cards, conversion, the scorer of one's own."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from recast_eval.records import Scored
from recast_eval.scorers import SCORERS
from recast_eval.scorers.base import ScorerCard
from recast_eval.scorers.conformance import CHECKS, cases

DOCS = Path(__file__).parents[2] / "docs" / "scorers.md"
BEGIN, END = "<!-- cards:begin -->\n", "<!-- cards:end -->"


def row(card: ScorerCard) -> str:
    bounds = "" if card.low is card.high is None else f" [{_bound(card.low)}, {_bound(card.high)}]"
    limit = "-" if card.text_limit is None else str(card.text_limit)
    needs = "; ".join(card.needs) or "nothing"
    cells = [f"`{card.name}`", card.family, card.what, card.unit + bounds, limit, needs]
    return "| " + " | ".join(cells) + " |"


def _bound(value: float | None) -> str:
    return "any" if value is None else f"{value:g}"


def table() -> str:
    head = "| scorer | family | high means | value [range] | text limit | needs |\n" + "|---" * 6
    rows = [row(SCORERS.load(name).card) for name in SCORERS]
    return "\n".join([head + "|", *rows]) + "\n"


def block(first: str) -> str:
    found = re.search(rf"```python\n({re.escape(first)}.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    assert found, f"no block that begins with {first!r}"
    return found[1]


def test_the_table_is_the_cards(request: pytest.FixtureRequest) -> None:
    text = DOCS.read_text("utf-8")
    before, rest = text.split(BEGIN)
    shown, after = rest.split(END)
    if request.config.getoption("--update-golden"):
        DOCS.write_text(before + BEGIN + table() + END + after, encoding="utf-8")
        return
    assert shown == table(), "docs/scorers.md is behind the cards; --update-golden"


def test_each_scorer_for_photos_has_its_traps() -> None:
    traps = DOCS.read_text("utf-8").split("## Traps")[1].split("\n## ")[0]
    starter = {
        *("alignment", "alignment-heldout", "card-distance", "composition"),
        *("finish", "tidy", "verifier"),
    }
    for name in SCORERS:
        assert name in starter or f"`{name}`" in traps, name


def test_a_pickled_checkpoint_becomes_safetensors(tmp_path: Path) -> None:
    shared = torch.arange(6.0).reshape(2, 3)
    state = {"a": shared, "b": shared.T}
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "published.pt")
    (tmp_path / "convert.py").write_text(block("# convert.py"))
    command = [sys.executable, "convert.py", "published.pt", "made.safetensors"]
    subprocess.run(command, cwd=tmp_path, check=True)
    made = load_file(tmp_path / "made.safetensors")
    assert made.keys() == state.keys()
    for name, value in state.items():
        assert torch.equal(made[name], value)


def test_the_scorer_of_one_s_own_conforms() -> None:
    space: dict[str, object] = {}
    exec(block("from recast_eval.records import Scored"), space)  # noqa: S102 - our own text
    scorer = space["SPEC"].build()  # type: ignore[attr-defined]
    for check in CHECKS:
        check(scorer, cases(["a prompt"]))
    white = scorer([np.full((8, 8, 3), 255, np.uint8)], [""])
    assert white == [Scored(value=1.0)]
