"""Shared fixtures and flags."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
from hypothesis import settings

settings.register_profile("recast", deadline=None, derandomize=True)
settings.load_profile("recast")

EXPECTED = Path(__file__).parent / "golden" / "expected"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/expected")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, Any], None]:
    """Compare a JSON value with tests/golden/expected/<name>.json."""

    def check(name: str, got: Any) -> None:
        path = EXPECTED / f"{name}.json"
        text = json.dumps(got, indent=1, sort_keys=True) + "\n"
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; --update-golden"

    return check
