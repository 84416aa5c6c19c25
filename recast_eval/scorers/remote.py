"""A scorer in another process, used like one in this."""

import time
import weakref
from collections.abc import Iterator, Sequence

import httpx
import numpy as np
from pydantic import ValidationError
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    wait_random_exponential,
)

from recast_eval.errors import MissingError
from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import ScorerCard
from recast_eval.scorers.each import check_batch
from recast_eval.scorers.wire import (
    MAX_BODY,
    Health,
    ScoreRequest,
    ScoreResponse,
    WireItem,
    to_png,
)

CHUNK = 32
_BACKOFF = wait_random_exponential(multiplier=0.2, max=5)


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = 0.0
    if isinstance(error, httpx.HTTPStatusError):
        value = error.response.headers.get("Retry-After", "")
        asked = min(float(value), 10.0) if value.isdigit() else 0.0
    return max(asked, _BACKOFF(state))


def _again(error: BaseException) -> bool:
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in (429, 502, 503, 504)
    return isinstance(error, httpx.TransportError)


def chunks(
    images: Sequence[np.ndarray], prompts: Sequence[str], *, limit: int = MAX_BODY // 2
) -> Iterator[list[WireItem]]:
    """Split a batch into requests of ``CHUNK`` items and ``limit`` characters of PNG at most."""
    part: list[WireItem] = []
    size = 0
    for i, (image, prompt) in enumerate(zip(images, prompts, strict=True)):
        item = WireItem(id=str(i), prompt=prompt, png=to_png(image))
        if part and (len(part) == CHUNK or size + len(item.png) > limit):
            yield part
            part, size = [], 0
        part.append(item)
        size += len(item.png)
    if part:
        yield part


class RemoteScorer:
    """Sends PNGs to ``recast-eval serve`` or to any server that speaks ``wire``.

    Args:
        url: E.g. ``http://127.0.0.1:8711``.
        name: The scorer that must answer there; None takes whichever does.
        attempts: Tries of one chunk before its items are ``Failed`` ("transport").

    Raises:
        MissingError: Nobody answers, or another scorer does.
    """

    def __init__(
        self, url: str, *, name: str | None = None, attempts: int = 8, timeout_s: float = 300.0
    ) -> None:
        self._url = url.rstrip("/")
        self._client = httpx.Client(timeout=timeout_s, trust_env=False)
        weakref.finalize(self, self._client.close)  # a scorer has no end of its own
        self._retry = Retrying(
            stop=stop_after_attempt(attempts),
            wait=_wait,
            retry=retry_if_exception(_again),
            sleep=time.sleep,
            reraise=True,
        )
        health = self._health(name)
        needs = tuple(health.card.get("needs", ()))  # JSON has no tuples
        self.card = ScorerCard(**{**health.card, "needs": needs})
        if self.card.digest() != health.digest:
            raise MissingError(f"{self._url}: the card sent does not have the digest sent")

    def _health(self, name: str | None) -> Health:
        try:
            reply = self._client.get(f"{self._url}/health").raise_for_status()
            health = Health.model_validate_json(reply.content)
        except (httpx.HTTPError, ValidationError) as error:
            raise MissingError(
                f"no scorer answers at {self._url} ({type(error).__name__}): start one with "
                f"`recast-eval serve {name or 'NAME'}`"
            ) from error
        if name is not None and health.name != name:
            raise MissingError(f"{self._url} serves {health.name!r}, not {name!r}")
        return health

    def __call__(
        self, images: Sequence[np.ndarray], prompts: Sequence[str]
    ) -> list[Scored | Failed]:
        """See ``Scorer``."""
        check_batch(images, prompts)
        found: list[Scored | Failed] = []
        for items in chunks(images, prompts):
            found += self._ask(items)
        return found

    def _ask(self, items: Sequence[WireItem]) -> list[Scored | Failed]:
        body = ScoreRequest(items=list(items)).model_dump_json()
        try:
            response = self._retry(self._post, body)
        except (httpx.HTTPError, ValidationError) as error:
            return [Failed(reason="transport", detail=type(error).__name__)] * len(items)
        if response.digest != self.card.digest():
            return [Failed(reason="scorer_changed", detail=response.digest)] * len(items)
        by_id = {r.id: r.outcome for r in response.results}
        return [by_id.get(i.id, Failed(reason="no_answer")) for i in items]

    def _post(self, body: str) -> ScoreResponse:
        headers = {"Content-Type": "application/json"}
        reply = self._client.post(f"{self._url}/score", content=body, headers=headers)
        return ScoreResponse.model_validate_json(reply.raise_for_status().content)
