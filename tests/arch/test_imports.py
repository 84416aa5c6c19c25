"""What an import costs, and what it must not reach."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "diffusers", "transformers", "openai", "matplotlib", "pandas", "datasets")


@pytest.mark.parametrize("module", ["recast_eval.cli", "recast_train.cli"])
def test_importing_a_command_line_loads_nothing_heavy(module: str) -> None:
    code = (
        f"import sys; from {module} import main\n"
        "from recast_eval.console import build_app\n"
        f"import {module.split('.')[0]}.commands as c; build_app(c, '')\n"
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_import_contracts_hold() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
