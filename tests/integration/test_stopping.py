"""Ctrl-C and TERM as a terminal and a scheduler send them: nothing outlives what was stopped."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

DEMO = Path(__file__).parents[2] / "docs" / "demo.sh"
SWEEP = """
import sys
from pathlib import Path
from recast_train.sweep import SweepRun, _local
code = "import sys, time; open(sys.argv[1], 'w').close(); time.sleep(120)"
commands = {n: [sys.executable, "-c", code, f"{sys.argv[1]}/{n}"] for n in "abc"}
print(dict(_local(2)(commands)))
"""


TRAINER = """#!{python}
import signal, sys, time
out = sys.argv[sys.argv.index("--out") + 1].replace("/", "_")
told = []
signal.signal(signal.SIGINT, lambda *_: told.append("int"))
signal.signal(signal.SIGTERM, lambda *_: told.append("term"))
open("ready" + out, "w").close()
while not told:
    time.sleep(0.01)
time.sleep(0.5)
open("told" + out, "w").write(" ".join(told))
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


def _demo(tmp_path: Path, trainer: str, stop: Callable[[int, int], None], ready: str) -> int:
    """The demo on a terminal of its own, with a stub for the trainer; returns its exit status."""
    stub = tmp_path / "bin" / "recast-train"
    stub.parent.mkdir()
    stub.write_text(trainer, "utf-8")
    stub.chmod(0o755)
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)
        os.environ["PATH"] = f"{stub.parent}:{os.environ['PATH']}"
        os.execvp("bash", ["bash", str(DEMO)])  # noqa: S606
    _until(lambda: len(list(tmp_path.glob(ready))) == 2)
    stop(process, terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os.close(terminal)
    return status


def test_ctrl_c_reaches_each_run_of_the_demo_once(tmp_path: Path) -> None:
    trainer = TRAINER.format(python=sys.executable)
    status = _demo(tmp_path, trainer, lambda _, terminal: _type(terminal, b"\x03"), "ready*")
    assert status == 130
    assert [p.read_text("utf-8") for p in tmp_path.glob("told*")] == ["int", "int"]


def test_term_of_the_demo_reaches_its_runs(tmp_path: Path) -> None:
    trainer = TRAINER.format(python=sys.executable)
    status = _demo(tmp_path, trainer, lambda process, _: os.kill(process, signal.SIGTERM), "ready*")
    assert status == 143
    assert [p.read_text("utf-8") for p in tmp_path.glob("told*")] == ["term", "term"]


def _type(terminal: int, keys: bytes) -> None:
    os.write(terminal, keys)


def test_a_run_started_deaf_stops_while_it_loads(tmp_path: Path) -> None:
    """A shell's ``&`` ignores Ctrl-C on our behalf, and nothing is lost before training."""
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from recast_train.cli import main; main()"
    )
    out = tmp_path / "run"
    run = subprocess.Popen(
        [sys.executable, "-c", code, "run", "starter-rebrl", "--out", str(out)],
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    _until((out / "recipe.yaml").exists)
    run.send_signal(signal.SIGINT)
    said = run.communicate(timeout=120)[1].decode()
    assert run.returncode == 130, said
    assert not (out / "metrics.jsonl").exists()
    assert "Traceback" not in said
