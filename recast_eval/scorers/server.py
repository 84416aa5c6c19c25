"""Serve one scorer over HTTP: batches what waits, refuses what would wait too long."""

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from recast_eval.errors import DataError
from recast_eval.images import decode_image
from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import Scorer
from recast_eval.scorers.each import score_apart
from recast_eval.scorers.wire import (
    MAX_BODY,
    Health,
    ScoreRequest,
    ScoreResponse,
    WireItem,
    WireResult,
)


@dataclass(slots=True)
class _Waiting:
    images: list[np.ndarray]
    prompts: list[str]
    answer: asyncio.Future[list[Scored | Failed]]


class Batcher:
    """One worker thread runs the scorer on batches made of whole requests.

    Args:
        scorer: Called from one thread only.
        max_batch: Images that one call of the scorer gets at most, if requests allow it.
        max_waiting: Requests in the queue before new ones are refused.

    Raises:
        ValueError: One of them is below 1.
    """

    def __init__(self, scorer: Scorer, *, max_batch: int, max_waiting: int) -> None:
        if min(max_batch, max_waiting) < 1:  # asyncio takes a queue of 0 for one without end
            raise ValueError(f"must be 1 or more: max_batch {max_batch}, max_waiting {max_waiting}")
        self._scorer, self._max_batch = scorer, max_batch
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue(max_waiting)

    @property
    def full(self) -> bool:
        """Whether the next request would be refused."""
        return self._queue.full()

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return self._queue.qsize()

    async def score(self, images: list[np.ndarray], prompts: list[str]) -> list[Scored | Failed]:
        """Wait for the outcomes of one request.

        Raises:
            asyncio.QueueFull: Too many are waiting.
        """
        answer: asyncio.Future[list[Scored | Failed]] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(_Waiting(images, prompts, answer))
        return await answer

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            batch = [await self._queue.get()]
            size = len(batch[0].images)
            while not self._queue.empty() and size < self._max_batch:
                batch.append(self._queue.get_nowait())
                size += len(batch[-1].images)
            images = [i for w in batch for i in w.images]
            prompts = [p for w in batch for p in w.prompts]
            outcomes = await asyncio.to_thread(score_apart, self._scorer, images, prompts)
            for waiting in batch:
                mine, outcomes = outcomes[: len(waiting.images)], outcomes[len(waiting.images) :]
                if not waiting.answer.done():
                    waiting.answer.set_result(mine)


def _decode(item: WireItem) -> np.ndarray | Failed:
    try:
        data = base64.b64decode(item.png, validate=True)
        return decode_image(data, path=Path(item.id))[0]
    except (binascii.Error, DataError) as error:
        return Failed(reason="image_error", detail=str(error))


def _refuse(request: Request, batcher: Batcher, max_body: int) -> Response | None:
    """What can be refused by the head alone, before a body of any size is read and decoded."""
    if request.method != "POST":
        return None
    length = request.headers.get("content-length", "")
    if not length.isdecimal():
        return JSONResponse({"detail": "Content-Length is needed"}, 411)
    if int(length) > max_body:
        return JSONResponse({"detail": f"more than {max_body} bytes: send fewer items"}, 413)
    return _full() if batcher.full else None


def _full() -> Response:
    return JSONResponse({"detail": "the queue is full"}, 429, {"Retry-After": "1"})


def make_app(
    scorer: Scorer, *, max_batch: int = 64, max_waiting: int = 64, max_body: int = MAX_BODY
) -> FastAPI:
    """The service as an ASGI application; see ``wire`` for what it answers."""
    digest = scorer.card.digest()
    batcher = Batcher(scorer, max_batch=max_batch, max_waiting=max_waiting)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        worker = asyncio.create_task(batcher.run())
        yield
        worker.cancel()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)

    @app.middleware("http")
    async def gate(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        return _refuse(request, batcher, max_body) or await answer(request)

    @app.get("/health")
    async def health() -> Health:
        card = asdict(scorer.card)
        return Health(name=scorer.card.name, digest=digest, card=card, waiting=batcher.waiting)

    @app.post("/score", response_model=ScoreResponse)
    async def score(request: ScoreRequest) -> Response | ScoreResponse:
        decoded = await asyncio.to_thread(lambda: [_decode(i) for i in request.items])
        good = [i for i, d in enumerate(decoded) if isinstance(d, np.ndarray)]
        outcomes: list[Scored | Failed] = [d for d in decoded if not isinstance(d, np.ndarray)]
        try:
            scored = await batcher.score(
                [d for d in decoded if isinstance(d, np.ndarray)],
                [request.items[i].prompt for i in good],
            )
        except asyncio.QueueFull:
            return _full()
        taken, failed = iter(scored), iter(outcomes)
        kinds = set(good)
        results = [
            WireResult(id=item.id, outcome=next(taken) if i in kinds else next(failed))
            for i, item in enumerate(request.items)
        ]
        return ScoreResponse(digest=digest, results=results)

    return app
