"""The service's queue: whole requests in one batch, refusal when full, life after a bad batch."""

import asyncio
import threading
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

import recast_eval.commands
from recast_eval.console import build_app
from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import ScorerCard
from recast_eval.scorers.each import score_apart
from recast_eval.scorers.remote import chunks
from recast_eval.scorers.server import Batcher, make_app
from recast_eval.scorers.wire import to_png

CARD = ScorerCard(name="s", version=1, family="f", what="w", unit="u")


class Held:
    """Waits to be let go; gives each image the number in its prompt."""

    card = CARD

    def __init__(self) -> None:
        self.go, self.sizes = threading.Event(), list[int]()

    def __call__(self, images: list[np.ndarray], prompts: list[str]) -> list[Scored | Failed]:
        assert self.go.wait(10)
        self.sizes.append(len(images))
        if "bad" in prompts:
            raise RuntimeError("bad")
        return [Scored(value=float(p)) for p in prompts]


def pictures(count: int) -> list[np.ndarray]:
    return [np.zeros((2, 2, 3), np.uint8)] * count


async def _started(batcher: Batcher, prompts: list[str]) -> "asyncio.Task[list[Scored | Failed]]":
    task = asyncio.create_task(batcher.score(pictures(len(prompts)), prompts))
    await asyncio.sleep(0.01)
    return task


def test_what_waits_goes_together_and_what_is_too_much_is_refused() -> None:
    async def story() -> None:
        scorer = Held()
        batcher = Batcher(scorer, max_batch=64, max_waiting=2)
        worker = asyncio.create_task(batcher.run())
        tasks = [await _started(batcher, p) for p in (["1"], ["2", "3"], ["4"])]
        assert batcher.waiting == 2  # the first is being scored
        with pytest.raises(asyncio.QueueFull):
            await batcher.score(pictures(1), ["5"])
        scorer.go.set()
        answers = [[o.value for o in await t if isinstance(o, Scored)] for t in tasks]
        assert answers == [[1.0], [2.0, 3.0], [4.0]]
        assert scorer.sizes == [1, 3]
        worker.cancel()

    asyncio.run(story())


def test_one_bad_picture_fails_alone_among_requests_that_wait_together() -> None:
    async def story() -> None:
        scorer = Held()
        batcher = Batcher(scorer, max_batch=64, max_waiting=8)
        worker = asyncio.create_task(batcher.run())
        tasks = [await _started(batcher, p) for p in (["1"], ["2"], ["bad"], ["4", "bad", "5"])]
        scorer.go.set()
        answers = [[getattr(o, "value", "failed") for o in await t] for t in tasks]
        assert answers == [[1.0], [2.0], ["failed"], [4.0, "failed", 5.0]]
        worker.cancel()

    asyncio.run(story())


def test_what_is_too_long_or_too_much_is_refused_unread() -> None:
    def body(count: int) -> dict[str, object]:
        png = to_png(np.zeros((2, 2, 3), np.uint8))
        return {"items": [{"id": str(i), "prompt": "1", "png": png} for i in range(count)]}

    async def no_length() -> AsyncIterator[bytes]:
        raise AssertionError("it was read")
        yield b""

    async def story() -> None:
        scorer = Held()
        app = make_app(scorer, max_waiting=1, max_body=1000)
        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://t") as client,
        ):
            assert (await client.post("/score", json=body(100))).status_code == 413
            assert (await client.post("/score", content=no_length())).status_code == 411
            first = asyncio.create_task(client.post("/score", json=body(1)))
            await asyncio.sleep(0.1)
            second = asyncio.create_task(client.post("/score", json=body(1)))
            await asyncio.sleep(0.1)
            third = await client.post("/score", content=b"not even JSON")
            assert (third.status_code, third.headers["Retry-After"]) == (429, "1")
            assert (await client.get("/health")).json()["waiting"] == 1
            scorer.go.set()
            assert [(await t).status_code for t in (first, second)] == [200, 200]

    asyncio.run(story())


def test_a_client_keeps_requests_small() -> None:
    images = [np.random.default_rng(i).integers(0, 256, (20, 20, 3), np.uint8) for i in range(40)]
    one = len(to_png(images[0]))
    for limit, sizes in ((10**9, [32, 8]), (3 * one + 50, [3] * 13 + [1]), (1, [1] * 40)):
        parts = list(chunks(images, ["p"] * 40, limit=limit))
        assert [len(p) for p in parts] == sizes
        assert [i.png for p in parts for i in p] == [to_png(image) for image in images]
        assert all(len({i.id for i in p}) == len(p) for p in parts)


def test_too_few_outcomes_are_a_failure_and_shift_nothing() -> None:
    class Short:
        card = CARD

        def __call__(self, images: list[np.ndarray], prompts: list[str]) -> list[Scored | Failed]:
            return [Scored(value=float(p)) for p in prompts if p != "9"]

    assert score_apart(Short(), pictures(3), ["1", "9", "3"]) == [
        Scored(value=1.0),
        Failed(reason="scorer_error", detail="ValueError: 0 outcomes for 1 images"),
        Scored(value=3.0),
    ]


@pytest.mark.parametrize(
    "flags", [("--port", "99999"), ("--port", "0"), ("--max-waiting", "0"), ("--max-batch", "0")]
)
def test_flags_out_of_range_leave_with_status_2(flags: tuple[str, str]) -> None:
    result = CliRunner().invoke(build_app(recast_eval.commands, ""), ["serve", "finish", *flags])
    assert result.exit_code == 2, result.output
    assert flags[0] in result.output


def test_a_queue_of_0_is_refused_not_endless() -> None:
    with pytest.raises(ValueError, match="max_waiting 0"):
        Batcher(Held(), max_batch=1, max_waiting=0)


def test_one_bad_batch_fails_by_name_and_the_next_is_scored() -> None:
    async def story() -> None:
        scorer = Held()
        scorer.go.set()
        batcher = Batcher(scorer, max_batch=1, max_waiting=8)
        worker = asyncio.create_task(batcher.run())
        failed = await batcher.score(pictures(2), ["bad", "bad"])
        assert [getattr(f, "reason", "") for f in failed] == ["scorer_error"] * 2
        assert await batcher.score(pictures(1), ["7"]) == [Scored(value=7.0)]
        worker.cancel()

    asyncio.run(story())
