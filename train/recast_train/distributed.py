"""The few collectives of a run; one process needs none and gets no-ops."""

import os

import torch
import torch.distributed as dist
from torch import Tensor


def start(device: str) -> None:
    """Join the processes that ``torchrun`` started; nothing to do when there is one."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        dist.init_process_group("gloo" if device == "cpu" else "cpu:gloo,cuda:nccl")


def own_device(device: str) -> str:
    """The device of this process: ``cuda`` becomes ``cuda:N`` under ``torchrun``."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else device


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
