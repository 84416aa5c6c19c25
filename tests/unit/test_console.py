"""What a command's end looks like from outside."""

import subprocess
import sys

import pytest

SCRIPT = """
import typer
from pathlib import Path
from recast_eval.console import run_app
from recast_eval.errors import ConfigError
app = typer.Typer()
@app.command()
def it(what: str):
    if what == "config": raise ConfigError(["a: b"])
    if what == "bug": raise RuntimeError("ours")
    if what == "wordless": raise OSError("no model of this name")
    Path(what).mkdir()
run_app(app)
"""


@pytest.mark.parametrize(
    ("what", "status", "said"),
    [
        ("config", 2, "error: - a: b\n"),
        ("/dev/null/run", 2, "error: /dev/null/run: Not a directory\n"),
        ("/", 2, "error: /: File exists\n"),
        ("wordless", 2, "error: no model of this name\n"),
    ],
)
def test_one_line_and_status_2(what: str, status: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, what], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (status, said)


def test_a_mistake_of_ours_keeps_its_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "bug"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "RuntimeError" in done.stderr
