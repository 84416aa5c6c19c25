"""Checkpoints: whole or absent, and refused when a byte has changed."""

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError

from recast_eval.errors import ConfigError, DataError
from recast_eval.records import CheckpointCard, file_sha256, read_json, write_json
from recast_train.tensorfile import load_state, save_state

log = logging.getLogger(__name__)
CARD: Final = "checkpoint.json"
STATE: Final = "state/run.safetensors"


def save_checkpoint(
    folder: Path,
    step: int,
    state: dict[str, Any],
    save_adapter: Callable[[Path], None],
    make_card: Callable[[dict[str, str]], CheckpointCard],
) -> Path:
    """Write ``folder/step-NNNNNN``.

    All files go to a hidden folder first, the card with their digests last; then the folder
    gets its name. A crash leaves the old checkpoints and a hidden folder that is cleared later.

    Args:
        folder: ``runs/NAME/checkpoints``.
        step: Optimiser steps done.
        state: All that a resumed run needs.
        save_adapter: Writes the adapter's files into the folder that it is given.
        make_card: The card, given path -> SHA-256.
    """
    final, part = folder / f"step-{step:06d}", folder / f".step-{step:06d}.part"
    for stale in folder.glob(".step-*.part"):
        shutil.rmtree(stale)
    (part / "state").mkdir(parents=True)
    save_adapter(part / "adapter")
    save_state(part / STATE, state)
    files = {
        str(path.relative_to(part)): file_sha256(path)
        for path in sorted(part.rglob("*"))
        if path.is_file()
    }
    write_json(part / CARD, make_card(files))
    if final.exists():
        shutil.rmtree(final)
    part.rename(final)
    _sync_folder(folder)
    return final


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def list_checkpoints(folder: Path) -> list[Path]:
    """Whole checkpoints, oldest first."""
    found = [path.parent for path in folder.glob(f"step-*/{CARD}") if _step(path.parent).isdigit()]
    return sorted(found, key=lambda path: int(_step(path)))  # step-1000000 is after step-999999


def _step(checkpoint: Path) -> str:
    return checkpoint.name.removeprefix("step-")


def read_card(checkpoint: Path) -> CheckpointCard:
    """Read a checkpoint's card and check every file that it names.

    Raises:
        DataError: A file is missing or is not what was written.
    """
    card = read_json(checkpoint / CARD, CheckpointCard)
    root = checkpoint.resolve()
    for name, wanted in card.files.items():
        path = checkpoint / name
        if not path.resolve().is_relative_to(root) or not path.is_file():
            raise DataError("is named in checkpoint.json but missing", path=path)
        if (got := file_sha256(path)) != wanted:
            raise DataError(
                f"is not what was written (SHA-256 {got[:12]}..., the card says "
                f"{wanted[:12]}...): delete {checkpoint} to resume from the one before",
                path=path,
            )
    return card


def load_checkpoint(checkpoint: Path) -> tuple[CheckpointCard, dict[str, Any]]:
    """Card and run state of a checkpoint, after its digests were checked.

    Raises:
        DataError: A file is missing, changed, or no state of ours.
    """
    card = read_card(checkpoint)
    try:
        return card, load_state(checkpoint / STATE)
    except (ValueError, KeyError, SafetensorError, OSError) as error:
        raise DataError(str(error), path=checkpoint / STATE) from error


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Remove all but the last ``keep``; 0 keeps all."""
    for old in list_checkpoints(folder)[:-keep] if keep else []:
        (old / CARD).unlink()  # first, so that a half-removed one is no checkpoint
        shutil.rmtree(old)


def check_disk(
    folder: Path, needed: int, *, usage: Callable[[Path], Any] = shutil.disk_usage
) -> None:
    """Refuse to start a run that would fill the disk.

    Args:
        folder: Where the run is written; it exists.
        needed: Bytes.
        usage: What tells the free bytes.

    Raises:
        ConfigError: There is less room.
    """
    free = usage(folder).free
    if free < needed:
        raise ConfigError(
            [
                f"{folder}: {free / 1e6:.0f} MB are free, the run needs {needed / 1e6:.0f} MB; "
                "make room, choose another --out, or lower keep_checkpoints"
            ]
        )
