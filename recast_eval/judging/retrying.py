"""The one retry layer: exponential with jitter, and never sooner than the endpoint asked."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_random,
    wait_random_exponential,
)

from recast_eval.judging.transport import TransportError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and how long at most between two tries."""

    attempts: int = 6
    longest_s: float = 30.0
    """Of our own backoff."""
    cap_s: float = 60.0
    """Of what the endpoint may ask for; a longer wish is cut to this and said."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


def asked_pause(header: str | None, now: datetime) -> float | None:
    """Seconds that a Retry-After header asks for: a number, or an HTTP date; None if neither."""
    if header is None or not header.strip():
        return None
    try:
        seconds = float(header)
    except ValueError:
        pass
    else:
        return seconds if 0 <= seconds < float("inf") else None
    try:
        when = parsedate_to_datetime(header)
    except (TypeError, ValueError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - now).total_seconds())


class Pauses:
    """Tenacity's wait: the endpoint's wish if there is one (capped), else jittered backoff."""

    def __init__(self, policy: RetryPolicy, told: Callable[[TransportError, float], None]) -> None:
        self._policy, self._told = policy, told
        self._backoff = wait_random_exponential(multiplier=0.5, max=policy.longest_s)
        self._spread = wait_random(0, 0.25)
        self._said_cap = False

    def __call__(self, state: RetryCallState) -> float:
        """Seconds until the next try."""
        error = state.outcome.exception() if state.outcome else None
        if not isinstance(error, TransportError):
            return 0.0
        asked = asked_pause(error.retry_after, self._policy.now())
        if asked is None:
            pause = float(self._backoff(state))
            self._told(error, 0.0)
            return pause
        if asked > self._policy.cap_s and not self._said_cap:
            self._said_cap = True
            log.warning(
                "the endpoint asks for a pause of %.0f s; waiting %.0f s, the most that is allowed",
                asked,
                self._policy.cap_s,
            )
        pause = min(asked, self._policy.cap_s)
        self._told(error, pause)
        return pause + float(self._spread(state))


def retrying(policy: RetryPolicy, pauses: Pauses) -> AsyncRetrying:
    """Tenacity, set up for one question."""
    return AsyncRetrying(
        stop=stop_after_attempt(policy.attempts),
        wait=pauses,
        retry=retry_if_exception(lambda e: isinstance(e, TransportError) and e.worth_retrying),
        sleep=policy.sleep,
        reraise=True,
    )
