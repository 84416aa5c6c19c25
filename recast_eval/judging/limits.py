"""How many calls at once, and how much money: both are asked before a call, told after it."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class Limiter:
    """Adaptive concurrency: more after successes, half after the endpoint says it is busy.

    Starts low and doubles each round trip until the first congestion, then adds one a round trip
    (additive increase, multiplicative decrease; Chiu and Jain 1989).

    Args:
        most: Upper bound of calls in flight.
        start: Where it begins.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, most: int, *, start: int = 8, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if most < 1:
            raise ValueError(f"concurrency must be at least 1, got {most}")
        self.most = most
        self.limit = float(min(start, most))
        self.in_flight = 0
        self.peak = 0
        self._clock = clock
        self._slow_start = True
        self._not_before = 0.0
        self._last_cut = float("-inf")
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a place and for the end of a cool-down; hold the place inside."""
        await self._enter()
        try:
            yield
        finally:
            self.in_flight -= 1
            self._wake()

    async def _enter(self) -> None:
        while True:
            pause = self._not_before - self._clock()
            if pause > 0:
                await asyncio.sleep(pause)
                continue
            if self.in_flight < int(self.limit):
                self.in_flight += 1
                self.peak = max(self.peak, self.in_flight)
                return
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                else:
                    self._wake()  # the turn was given to us: pass it on
                raise

    def _wake(self) -> None:
        free = int(self.limit) - self.in_flight
        while free > 0 and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1

    def went_well(self) -> None:
        """A reply came."""
        step = 1.0 if self._slow_start else 1.0 / self.limit
        self.limit = min(float(self.most), self.limit + step)
        self._wake()

    def was_busy(self, pause_s: float = 0.0) -> None:
        """The endpoint asked for less; nobody calls during ``pause_s``."""
        now = self._clock()
        self._slow_start = False
        self._not_before = max(self._not_before, now + pause_s)
        if now - self._last_cut >= 0.5:  # the calls of one burst are one message
            self.limit = max(1.0, self.limit / 2)
            self._last_cut = now


class Budget:
    """A hard cap in US dollars. What a call may cost at most is set aside before it is made.

    Args:
        cap: None is no cap.
        spent: What earlier parts of the same run have cost.
    """

    def __init__(self, cap: float | None, *, spent: float = 0.0) -> None:
        if cap is not None and cap < 0:
            raise ValueError(f"a cost cap must not be negative, got {cap}")
        self.cap, self.spent, self.reserved = cap, spent, 0.0
        self._open = 0
        self._freed = asyncio.Event()

    def reserve(self, most: float) -> bool:
        """Set money aside; False if the cap does not allow it."""
        if self.cap is not None and self.spent + self.reserved + most > self.cap + 1e-12:
            return False
        self.reserved += most
        self._open += 1
        return True

    async def freed(self) -> bool:
        """Wait until a call has told its cost; False if none is on its way."""
        if not self._open:
            return False
        await self._freed.wait()
        return True

    def settle(self, reserved: float, cost: float | None) -> None:
        """Book what it did cost; unknown is booked as what was set aside."""
        self._open -= 1
        self.reserved = self.reserved - reserved if self._open else 0.0
        self.spent += reserved if cost is None else cost
        self._freed.set()
        self._freed = asyncio.Event()
