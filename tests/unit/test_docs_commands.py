"""Every command that a page shows is one that the programs accept: flags, arguments, names."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import recast_eval.commands
import recast_train.commands
from recast_eval.console import build_app
from recast_train.recipe_files import find_recipe

ROOT = Path(__file__).parents[2]
PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "train").glob("*/README.md")),
)
GROUPS: dict[str, Any] = {
    "recast-eval": typer.main.get_command(build_app(recast_eval.commands, "")),
    "recast-train": typer.main.get_command(build_app(recast_train.commands, "")),
}


def shown(page: Path) -> Iterator[str]:
    """Commands in a page's code blocks and inline code, continued lines joined."""
    text = re.sub(r"\\\n\s*", " ", page.read_text("utf-8"))
    starts = r"(?:recast-train|recast-eval|python benchmarks/)"
    for found in re.finditer(rf"(?:^ *|`)({starts}\S* ?[^`\n]*)", text, re.MULTILINE):
        command = re.split(r"\s+#\s", found[1])[0].strip()
        if re.match(r"(recast-\w+ [a-z]|python )", command):
            yield command


CASES = [
    pytest.param(command, id=f"{page.relative_to(ROOT)}: {command[:60]}")
    for page in PAGES
    for command in shown(page)
]


def test_pages_show_commands() -> None:
    assert len(CASES) > 40


@pytest.mark.parametrize("command", CASES)
def test_a_shown_command_is_accepted(command: str) -> None:
    words = shlex.split(command.replace("[", "").replace("]", ""))
    if words[0] == "python":
        script = ROOT / words[1]
        texts = [p.read_text("utf-8") for p in (script, script.with_name("starter_runs.py"))]
        assert all(any(f'"{w}"' in t for t in texts) for w in words if w.startswith("--"))
        return
    command_ = GROUPS[words[0]]
    while hasattr(command_, "commands") and len(words) > 1:
        assert words[1] in command_.commands, f"{words[0]} has no command {words[1]}"
        command_, words = command_.commands[words[1]], words[1:]
    known = {option for p in command_.params for option in (*p.opts, *p.secondary_opts)}
    assert {w.partition("=")[0] for w in words if w.startswith("--")} <= known | {"--help"}
    placeholders = any(w.isupper() for w in words) or "[" in command
    if len(words) > 1 and not words[1].startswith("-") and not placeholders:
        command_.make_context(words[0], words[1:])  # parses and converts, and runs nothing
    if words[0] in ("run", "profile", "estimate") and len(words) > 1 and words[1].islower():
        find_recipe(words[1])
