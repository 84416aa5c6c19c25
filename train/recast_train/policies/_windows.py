"""Which steps of a rollout are stochastic: the same for any number of processes."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor


class Window(NamedTuple):
    """Steps [first, last) of each sample, (N,) integers."""

    first: Tensor
    last: Tensor

    def at(self, step: int) -> Tensor:
        """(N,) bool: whose step this is."""
        return (self.first <= step) & (step < self.last)


def find_window(
    spec: Mapping[str, Any] | None,
    samples: int,
    num_steps: int,
    *,
    epoch: int,
    generator: Generator,
    visible: int | None = None,
) -> Window:
    """Resolve a method's wish for an epoch.

    Args:
        spec: ``kind`` and what it needs, as in a policy-gradient recipe's ``method.window``:
            ``all``; ``random`` (one place for the epoch); ``sliding`` (from ``low``, ``stride``
            steps every ``every`` epochs, until ``high``); ``branch`` (each ``branches``
            consecutive samples have a place of their own). None is ``all``.
        samples: N, of all processes.
        num_steps: T.
        epoch: From 0.
        generator: Only ``random`` and ``branch`` draw from it.
        visible: Steps, from the noisiest on, whose noise shows in the picture; windows end
            there. None: all.

    Raises:
        ValueError: The window is larger than the steps it may lie in, or an unknown kind.
    """
    if spec is None or spec["kind"] == "all":
        return _same(0, num_steps, samples)
    size = int(spec["size"])
    low, high = window_range(spec, num_steps, visible)
    starts = high - low - size + 1
    if spec["kind"] == "random":
        return _same(low + int(torch.randint(starts, (1,), generator=generator)), size, samples)
    if spec["kind"] == "sliding":
        moved = epoch // int(spec["every"]) * int(spec["stride"])
        return _same(low + min(moved, starts - 1), size, samples)
    if spec["kind"] == "branch":
        runs = -(-samples // int(spec["branches"]))
        # A fresh permutation a pass spreads the steps evenly over neighbouring runs.
        passes = [torch.randperm(starts, generator=generator) for _ in range(-(-runs // starts))]
        first = low + torch.cat(passes)[:runs].repeat_interleave(int(spec["branches"]))[:samples]
        return Window(first, first + size)
    raise ValueError(f"a window is all, random, sliding or branch, got {spec['kind']!r}")


def window_range(
    spec: Mapping[str, Any], num_steps: int, visible: int | None = None
) -> tuple[int, int]:
    """Steps [low, high) that a window may lie in.

    It ends with the visible steps, unless it is larger than they are: then it has one place.

    Raises:
        ValueError: It is larger than the steps between its bounds.
    """
    size = int(spec["size"])
    low, high = int(spec["low"] * num_steps), int(spec["high"] * num_steps)
    if high - low < size:
        raise ValueError(
            f"a window of {size} does not fit between {spec['low']} and {spec['high']} "
            f"of {num_steps} steps"
        )
    return low, high if visible is None else max(min(high, visible), low + size)


def _same(first: int, size: int, samples: int) -> Window:
    return Window(torch.full((samples,), first), torch.full((samples,), first + size))
