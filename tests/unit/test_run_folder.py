"""A run's folder: whose it is, and what is in it before and after a start."""

from pathlib import Path

import pytest
import torch

from recast_eval.errors import ConfigError, RecastError
from recast_train import distributed
from recast_train.config import Plan, load_plan
from recast_train.recipe_files import find_recipe
from recast_train.run_folder import RunFolder
from recast_train.session import run_recipe


def _plan(*overrides: str) -> Plan:
    return load_plan(find_recipe("starter-rebrl"), overrides)


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


@pytest.mark.parametrize("left", [(), ("recipe.yaml",), (".lock", ".recipe.yaml.1.2.part")])
def test_a_start_that_did_no_step_binds_nothing(left: tuple[str, ...], tmp_path: Path) -> None:
    """The folders are what older starts left too, on a full disk even without a recipe."""
    for name in ("samples", "checkpoints"):
        (tmp_path / name).mkdir()
    for name in left:
        (tmp_path / name).write_text("model: {base: /nope}\n", "utf-8")
    for resume in (False, True):
        folder = RunFolder(tmp_path)
        with folder.held():
            folder.prepare(_plan(), resume=resume)
        assert folder.same_recipe(_plan())


def test_the_recipe_is_there_before_the_folders(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.held():
        folder.recipe.mkdir()  # what cannot be replaced stands for a disk that is full
        with pytest.raises(OSError, match="recipe"):
            folder.prepare(_plan(), resume=False)
    assert not folder.samples.exists()


def test_a_run_that_did_a_step_keeps_its_recipe(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.prepare(_plan(), resume=False)
    folder.metrics.write_text("{}\n", "utf-8")
    with pytest.raises(ConfigError, match="add --resume"):
        folder.prepare(_plan(), resume=False)
    folder.prepare(_plan(), resume=True)
    with pytest.raises(ConfigError, match=r"recipe changed since the run began: epochs"):
        folder.prepare(_plan("epochs=3"), resume=True)
    folder.recipe.unlink()
    with pytest.raises(ConfigError, match="is not empty and holds no run"), folder.held():
        pass


def test_a_recipe_of_the_users_is_not_replaced(tmp_path: Path) -> None:
    mine = tmp_path / "recipe.yaml"
    mine.write_text("name: mine\n", "utf-8")
    with (
        pytest.raises(ConfigError, match="is not empty and holds no run"),
        RunFolder(tmp_path).held(),
    ):
        pass
    with pytest.raises(ConfigError, match="is not empty and holds no run"):
        RunFolder(tmp_path).prepare(_plan(), resume=True)
    assert mine.read_text("utf-8") == "name: mine\n"
    assert [p.name for p in tmp_path.iterdir()] == ["recipe.yaml"]


@pytest.mark.parametrize("device", ["nowhere", "cuda:99"])
def test_a_device_that_is_not_here_leaves_no_folder(device: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"--device: '{device}' cannot be used here"):
        run_recipe("starter-rebrl", out=tmp_path / "run", device=device)
    assert not (tmp_path / "run").exists()


def test_a_full_device_says_what_to_lower() -> None:
    with (
        pytest.raises(RecastError, match=r"is full \(CUDA out of memory\): lower micro_batch"),
        distributed.together(),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
