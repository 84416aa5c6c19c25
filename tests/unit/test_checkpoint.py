"""Checkpoints: whole or absent, refused when changed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recast_eval.errors import ConfigError, DataError
from recast_eval.records import CheckpointCard
from recast_train.checkpoint import (
    check_disk,
    list_checkpoints,
    load_checkpoint,
    prune_checkpoints,
    read_card,
    save_checkpoint,
)

STATE: dict[str, Any] = {"weights": torch.arange(4.0), "nested": {"step": 3, 7: [1.5, None]}}


def _card(files: dict[str, str]) -> CheckpointCard:
    return CheckpointCard(
        base_model="b",
        policy="sd3",
        step=3,
        recipe_name="r",
        recipe_digest="d",
        rewards={},
        files=files,
    )


def _adapter(folder: Path) -> None:
    folder.mkdir()
    (folder / "weights.bin").write_bytes(b"0123")


def _save(folder: Path, step: int = 3) -> Path:
    return save_checkpoint(folder, step, STATE, _adapter, _card)


def test_round_trip(tmp_path: Path) -> None:
    card, state = load_checkpoint(_save(tmp_path))
    assert set(card.files) == {"adapter/weights.bin", "state/run.safetensors"}
    assert torch.equal(state["weights"], STATE["weights"])
    assert state["nested"] == STATE["nested"]


def test_every_changed_byte_is_refused(tmp_path: Path) -> None:
    found = _save(tmp_path)
    for name in read_card(found).files:
        path = found / name
        whole = path.read_bytes()
        for place in (0, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(DataError, match="is not what was written"):
                load_checkpoint(found)
        path.write_bytes(whole)
    load_checkpoint(found)
    (found / "adapter" / "weights.bin").unlink()
    with pytest.raises(DataError, match="missing"):
        load_checkpoint(found)


def test_a_card_cannot_point_outside(tmp_path: Path) -> None:
    found = _save(tmp_path / "run")
    (tmp_path / "secret").write_bytes(b"x")
    card = found / "checkpoint.json"
    text = card.read_text("utf-8").replace("adapter/weights.bin", "../../secret")
    card.write_text(text, "utf-8")
    with pytest.raises(DataError, match="missing"):
        read_card(found)


def test_a_crash_before_the_card_leaves_no_checkpoint(tmp_path: Path) -> None:
    _save(tmp_path, 1)

    def explode(files: dict[str, str]) -> CheckpointCard:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, 2, STATE, _adapter, explode)
    assert [p.name for p in list_checkpoints(tmp_path)] == ["step-000001"]
    _save(tmp_path, 2)  # clears what the crash left
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000001", "step-000002"]


def test_pruning_keeps_the_last(tmp_path: Path) -> None:
    for step in (1, 2, 10):
        _save(tmp_path, step)
    prune_checkpoints(tmp_path, 0)
    assert len(list_checkpoints(tmp_path)) == 3
    prune_checkpoints(tmp_path, 2)
    assert [p.name for p in list_checkpoints(tmp_path)] == ["step-000002", "step-000010"]


def test_the_newest_has_the_largest_number_not_the_last_name(tmp_path: Path) -> None:
    for step in (1_000_000, 999_998, 999_999):
        _save(tmp_path, step)
    prune_checkpoints(tmp_path, 2)
    assert [p.name for p in list_checkpoints(tmp_path)] == ["step-999999", "step-1000000"]


def test_no_room(tmp_path: Path) -> None:
    def full(path: Path) -> SimpleNamespace:
        return SimpleNamespace(free=5_000_000)

    check_disk(tmp_path, 4_000_000, usage=full)
    with pytest.raises(ConfigError, match="5 MB are free, the run needs 6 MB"):
        check_disk(tmp_path, 6_000_000, usage=full)
