"""Run a coroutine to its end from code that does not wait, also inside a notebook's loop."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also where a loop is running already (a notebook).

    An interrupt cancels it, waits for it to clean up, and is raised again.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _Aside(work).result()


class _Aside(Generic[T]):
    """A coroutine in a loop and a thread of its own."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._box: list[T] = []
        self._fault: list[BaseException] = []
        self._task: asyncio.Task[T] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Not the thread's join: an interrupt in it makes Python 3.11 take the thread for ended.
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="judging")

    def _run(self) -> None:
        try:
            self._box.append(asyncio.run(self._held()))
        except BaseException as error:
            self._fault.append(error)
        finally:
            self._done.set()

    async def _held(self) -> T:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        return await self._work

    def result(self) -> T:
        """Wait for it."""
        self._thread.start()
        try:
            self._done.wait()
        except BaseException:
            if self._loop is not None and self._task is not None:
                with suppress(RuntimeError):  # the loop has ended meanwhile
                    self._loop.call_soon_threadsafe(self._task.cancel)
            self._done.wait()
            raise
        if self._fault:
            raise self._fault[0]
        return self._box[0]
