"""A run's folder: whose it is, and what is in it before and after a start."""

from pathlib import Path

import pytest

from recast_eval.errors import ConfigError
from recast_train.run_folder import RunFolder


def test_one_process_at_a_time(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with (
        folder.held(),
        pytest.raises(ConfigError, match=r"run: another process is training here"),
        RunFolder(folder.root).held(),
    ):
        pass
    with folder.held():  # the lock of a run that has ended, even killed, holds nobody up
        pass


def test_another_ones_files_get_no_lock(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("x", "utf-8")
    with (
        pytest.raises(ConfigError, match="is not empty and holds no run"),
        RunFolder(tmp_path).held(),
    ):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_system_without_locks_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def flock(descriptor: int, flags: int) -> None:
        raise OSError(95, "Operation not supported")

    with RunFolder(tmp_path).held(flock=flock):
        assert "cannot be locked" in caplog.text
