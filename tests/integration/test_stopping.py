"""Ctrl-C and TERM as a terminal and a scheduler send them: nothing outlives what was stopped."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SWEEP = """
import sys
from pathlib import Path
from recast_train.sweep import SweepRun, _local
code = "import sys, time; open(sys.argv[1], 'w').close(); time.sleep(120)"
commands = {n: [sys.executable, "-c", code, f"{sys.argv[1]}/{n}"] for n in "abc"}
print(dict(_local(2)(commands)))
"""


def _until(holds: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_stopped_sweep_leaves_no_child_and_starts_no_other(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        out = tmp_path / number.name
        out.mkdir()
        sweep = subprocess.Popen([sys.executable, "-c", SWEEP, str(out)], stdout=subprocess.PIPE)
        _until(lambda out=out: len(list(out.iterdir())) == 2)  # type: ignore[misc]
        sweep.send_signal(number)
        said = sweep.communicate(timeout=60)[0].decode()
        assert "{'a': 130, 'b': 130, 'c': 130}" in said
        assert {p.name for p in out.iterdir()} == {"a", "b"}
