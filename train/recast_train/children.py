"""Child processes that hear what we hear, so that none outlives a sweep that was stopped."""

import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

STOPPED: Final = 130
"""The exit status of a run that was stopped and can go on."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Children:
    """Starts commands from any thread; after a signal it starts no more."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # the handler may interrupt itself
        self._alive: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def call(self, command: Sequence[str]) -> int:
        """Run a command to its end; returns its exit status, ``STOPPED`` if a signal was passed on.

        It gets a process group of its own: a terminal's Ctrl-C reaches it once, through us.
        """
        with self._lock:
            if self._stopped:
                return STOPPED
            child = subprocess.Popen(command, process_group=0)  # noqa: S603 - our own command line
            self._alive.add(child)
        status = child.wait()
        with self._lock:
            self._alive.discard(child)
            return STOPPED if self._stopped and status < 0 else status

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Signal handler: pass it on and start nothing more."""
        with self._lock:
            self._stopped = True
            for child in self._alive:
                child.send_signal(number)


@contextmanager
def stopped_with_us() -> Iterator[Children]:
    """Children to which Ctrl-C, TERM and a lost terminal are passed on; main thread only."""
    children = Children()
    before = {number: signal.signal(number, children.handle) for number in _SIGNALS}
    try:
        yield children
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
