"""Ctrl-C and TERM: at once while a run loads, after the epoch and with a checkpoint once it trains.

Imports nothing heavy, so that a command can listen before it imports what takes seconds.
"""

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

log = logging.getLogger(__name__)
SAME: Final = 1.0
"""Seconds: a signal that follows the first one this soon is the same wish, told twice.

A terminal signals every process of its group, and a launcher or a script may pass it on."""


class StopFlag:
    """Set by the first signal while the run trains; a later one stops at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: float | None = None
        self.training = False
        """Off: there is nothing to save yet, and the first signal stops at once."""

    def is_set(self) -> bool:
        """Whether someone asked to stop."""
        return self._first is not None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Signal handler.

        Raises:
            KeyboardInterrupt: Stop now.
        """
        now = self._clock()
        if self._first is not None and now - self._first < SAME:
            return
        if self._first is not None or not self.training:
            raise KeyboardInterrupt
        self._first = now
        log.warning("stopping after this epoch with a checkpoint; once more to stop at once")


@contextmanager
def stop_flag() -> Iterator[StopFlag]:
    """Listen to Ctrl-C and TERM, also where a shell started us deaf to Ctrl-C (with ``&``)."""
    flag = StopFlag()
    before = {s: signal.signal(s, flag.handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
