"""The few collectives of a run; one process needs none and gets no-ops."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

from recast_eval.errors import ConfigError, RecastError

PATIENCE: Final = timedelta(minutes=30)
"""How long a process waits for the others: they may load, score or save meanwhile."""
_SIGNS: Final = ("gloo", "NCCL", "Connection closed", "Timed out", "process group")


def start(device: str) -> None:
    """Join the processes that ``torchrun`` started; nothing to do when there is one."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
        if device.startswith("cuda"):
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group(backend, timeout=PATIENCE)


@contextmanager
def together() -> Iterator[None]:
    """Say in one line that another process was lost or the device is full, and what to do.

    Raises:
        RecastError: A collective failed, or memory did not suffice.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise RecastError(
            f"the device's memory is full ({str(error).partition('. ')[0]}): lower micro_batch, "
            "sampler.rollout_batch or model.decode_batch, or set rewards.NAME.device; "
            "recast-train estimate says what a recipe needs"
        ) from error
    except RuntimeError as error:
        lost = isinstance(error, dist.DistError) or any(sign in str(error) for sign in _SIGNS)
        if world() == 1 or not lost:
            raise
        raise RecastError(
            f"process {rank()} of {world()} stops: another one ended or did not answer (its own "
            "message is above or in its log); the same command with --resume goes on from the "
            "last checkpoint"
        ) from error


def sharded() -> bool:
    """Whether frozen weights are split: ``accelerate launch --use_fsdp`` and two or more."""
    return world() > 1 and _fsdp()


def asked_to_shard() -> bool:
    """The same, known from the launcher before the processes have met."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and _fsdp()


def _fsdp() -> bool:
    return os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"


def own_device(device: str) -> str:
    """The device of this process: ``cuda`` becomes ``cuda:N`` under ``torchrun``."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else device


def check_device(device: str) -> None:
    """Refuse a device that is not here before anything is loaded or written.

    Raises:
        ConfigError: PyTorch does not know it, or cannot put a tensor there.
    """
    try:
        torch.empty(0, device=own_device(device))
    except (RuntimeError, AssertionError) as error:
        why = str(error).partition("\n")[0]
        raise ConfigError([f"--device: {device!r} cannot be used here ({why})"]) from error


def stop() -> None:
    """Leave the group."""
    if dist.is_initialized():
        dist.destroy_process_group()


def rank() -> int:
    """This process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    """How many there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def add(value: Tensor) -> Tensor:
    """Sum over processes, in place: on the device of ``value``."""
    if world() > 1:
        dist.all_reduce(value)
    return value


def largest(value: int) -> int:
    """The largest of all processes' numbers."""
    found = torch.tensor(value)
    if world() > 1:
        dist.all_reduce(found, dist.ReduceOp.MAX)
    return int(found)


def gather_rows(rows: Tensor, first: int, total: int) -> Tensor:
    """Rows of all processes: each gives its own, from ``first`` on, and gets all ``total``."""
    if world() == 1:
        return rows
    full = rows.new_zeros((total, *rows.shape[1:]))
    full[first : first + len(rows)] = rows
    return add(full)


def barrier() -> None:
    """Wait for all."""
    if world() > 1:
        dist.barrier()
