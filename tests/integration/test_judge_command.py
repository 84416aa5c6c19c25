"""``recast-eval judge`` as a process: killed, resumed, dry, offline, and its exit statuses."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.image_folders import make_folder
from support.judge_server import JudgeServer, Script
from support.judging import World

ROUGH = {"busy": 0.1, "drop": 0.05, "malformed": 0.03, "refuse": 0.02}


def command(folder: Path, *words: str) -> list[str]:
    program = "from recast_eval.cli import main; main()"
    return [sys.executable, "-c", program, *words]


def run(
    folder: Path, *words: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *words),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **(env or {})},
        check=False,
    )


def judge_words(server: JudgeServer, *more: str) -> Sequence[str]:
    return (
        "judge",
        "--pairwise",
        "A",
        "B",
        "--base-url",
        server.url,
        "--model",
        "mock",
        "--out",
        "out",
        *more,
    )


def test_killed_three_times_it_ends_where_an_undisturbed_run_ends(tmp_path: Path) -> None:
    """400 pairs, 10 % 429, 5 % dropped, 3 % malformed, 2 % refusals, SIGKILL at three moments."""
    world = World.make(tmp_path, prompts=400)
    with JudgeServer(Script(**ROUGH)) as calm:
        world.run(calm, out="calm", concurrency=32)
    script = Script(**ROUGH, delay_s=0.02, retry_after=["0", "date", None])
    with JudgeServer(script) as server:
        words = judge_words(server, "--concurrency", "32")
        for at in (60, 220, 480):
            process = subprocess.Popen(
                command(tmp_path, *words), cwd=tmp_path, stderr=subprocess.DEVNULL
            )
            give_up = time.monotonic() + 240
            while server.calls < at and process.poll() is None and time.monotonic() < give_up:
                time.sleep(0.002)
            assert process.poll() is None, "it ended before it could be killed"
            process.send_signal(signal.SIGKILL)
            process.wait()
        last = run(tmp_path, *words)
        assert last.returncode == 1, last.stderr  # some replies are malformed or refusals
        assert "of 400 scored" in last.stdout
        paid, delivered = dict(server.paid), dict(server.delivered)
    assert world.table("out") == world.table("calm")
    assert world.states("out").keys() == {"win", "no_verdict", "refused"}
    assert len(paid) == 800
    assert set(paid.values()) == {1}  # with a key that a server can honour, nothing is paid twice
    with sqlite3.connect(tmp_path / "out" / "replies.sqlite") as db:
        lost = db.execute("SELECT SUM(lost), COUNT(*) FROM runs").fetchone()
        finals = db.execute(
            "SELECT MAX(n) FROM (SELECT COUNT(*) n FROM calls WHERE final=1 GROUP BY key)"
        )
        assert finals.fetchone()[0] == 1  # one final record a question
    db.close()
    assert lost[1] == 4
    # Even a server that ignores the key gave again only what was on its way when the process died.
    again = sum(n - 1 for n in delivered.values())
    assert again <= 3 * 32
    assert again <= lost[0]


def test_exit_statuses(tmp_path: Path) -> None:
    make_folder(tmp_path / "A", prompts=3, seed=1)
    make_folder(tmp_path / "B", prompts=3, seed=2)
    with JudgeServer() as server:
        words = judge_words(server)
        dry = run(tmp_path, *words, "--dry-run", "--price", "2,10")
        assert (dry.returncode, server.calls) == (0, 0), dry.stderr
        assert "to ask 6" in dry.stdout
        assert "USD" in dry.stdout
        assert not (tmp_path / "out").exists()
        capless = run(tmp_path, *words, "--max-cost", "1")
        assert capless.returncode == 2
        assert "--price" in capless.stderr
        server.script.down = True
        dead = run(tmp_path, *words)
        assert dead.returncode == 1
        assert "0 of 3 scored" in dead.stdout
        assert server.url in dead.stderr
        server.script.down = False
        done = run(tmp_path, *words)
        assert done.returncode == 0, done.stderr
        assert "3 of 3 scored" in done.stdout
        again = run(tmp_path, *words)
        assert "6 were in the store, 0 asked" in again.stdout
        assert server.calls == 6
        assert run(tmp_path, "replay", "out").returncode == 0
        one = run(tmp_path, "judge", "A", "nowhere/at/all", *words[4:])
        assert one.returncode == 2
        assert "nowhere/at/all" in one.stderr
        assert "Traceback" not in one.stderr + capless.stderr
    ledger = json.loads((tmp_path / "out" / "ledger.json").read_text("utf-8"))
    assert ledger["replies"] == 6


def test_without_an_endpoint_the_held_out_scorers_vote(tmp_path: Path) -> None:
    make_folder(tmp_path / "A", prompts=3, seed=1, size=64)
    make_folder(tmp_path / "B", prompts=3, seed=2, size=64, flat=True)
    done = run(
        tmp_path, "judge", "--pairwise", "A", "B", "--scorers", "finish,tidy", "--out", "out"
    )
    assert "--base-url" in done.stdout, done.stderr
    text = (tmp_path / "out" / "verdicts.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    assert [r["judge"] for r in rows] == ["jury-offline-v1"] * 3
    assert all(r["order_free"] and not r["orders"] for r in rows)
    assert {v["judge"] for r in rows for v in r["votes"]} == {"finish", "tidy"}


def test_a_batch_is_written_submitted_and_collected(tmp_path: Path) -> None:
    make_folder(tmp_path / "A", prompts=3, seed=1)
    make_folder(tmp_path / "B", prompts=3, seed=2)
    with JudgeServer() as server:
        words = judge_words(server)
        assert run(tmp_path, *words, "--batch", "submit").returncode == 2
        assert run(tmp_path, *words, "--batch", "write").returncode == 0
        assert run(tmp_path, *words, "--batch", "submit").returncode == 0
        got = run(tmp_path, *words, "--batch", "collect")
        assert got.returncode == 0, got.stderr
        assert "3 of 3 scored" in got.stdout
        assert server.calls == 6
        later = run(tmp_path, *words)
        assert "6 were in the store, 0 asked" in later.stdout
        assert run(tmp_path, *words, "--batch", "sideways").returncode == 2


@pytest.mark.parametrize("locale", [{"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_text_survives_a_plain_locale(tmp_path: Path, locale: dict[str, str]) -> None:
    prompt = "café 一只红色的猫 line\u2028sep\u0085nel \U0001f408 \u202etxt"
    for name, seed in (("A", 1), ("B", 2)):
        folder = make_folder(tmp_path / name, prompts=1, seed=seed)
        row = {"file_name": "0-0.png", "prompt": prompt, "prompt_id": "007"}
        text = json.dumps(row, ensure_ascii=False) + "\n"
        (folder / "metadata.jsonl").write_text(text, encoding="utf-8", newline="\n")
    with JudgeServer() as server:
        done = run(tmp_path, *judge_words(server), env=locale)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "out" / "verdicts.jsonl").read_bytes().split(b"\n")
    assert len(lines) == 2
    record = json.loads(lines[0])
    assert (record["prompt"], record["prompt_id"]) == (prompt, "007")
