"""A scorer in another process answers as the same scorer here, whatever happens in between."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import numpy as np
import pytest

from recast_eval.errors import MissingError
from recast_eval.records import Failed, Scored
from recast_eval.scorers import SCORERS
from recast_eval.scorers.remote import RemoteScorer
from recast_eval.scorers.world import draw_card, write_caption
from recast_train.starter.scenes import sample_scene

NAME = "finish"


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def _start(port: int) -> subprocess.Popen[bytes]:
    code = "from recast_eval.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", NAME, "--port", str(port)]
    process = subprocess.Popen(command)
    for _ in range(300):
        try:
            httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).raise_for_status()
            return process
        except httpx.HTTPError:
            time.sleep(0.1)
    process.kill()
    raise AssertionError("the server did not come up")


@contextmanager
def _server() -> Iterator[int]:
    port = _free_port()
    process = _start(port)
    try:
        yield port
    finally:
        process.kill()
        process.wait()


def _cards(count: int) -> tuple[list[np.ndarray], list[str]]:
    rng = np.random.default_rng(0)
    scenes = [sample_scene(rng) for _ in range(count)]
    return [np.asarray(draw_card(s, rng)) for s in scenes], [write_caption(s) for s in scenes]


def test_remote_equals_local_and_a_bad_png_is_its_own_failure() -> None:
    images, prompts = _cards(40)
    local = SCORERS.load(NAME).build()
    with _server() as port:
        remote = RemoteScorer(f"http://127.0.0.1:{port}", name=NAME)
        assert remote.card == local.card
        assert remote(images, prompts) == local(images, prompts)
        body = {"items": [{"id": "x", "prompt": "p", "png": "AAAA"}]}
        reply = httpx.post(f"http://127.0.0.1:{port}/score", json=body, trust_env=False).json()
        assert reply["results"][0]["outcome"]["reason"] == "image_error"
        assert httpx.post(f"http://127.0.0.1:{port}/score", json={}).status_code == 422
        with pytest.raises(MissingError, match="serves 'finish', not 'ocr'"):
            RemoteScorer(f"http://127.0.0.1:{port}", name="ocr")


def test_no_server_says_how_to_start_one() -> None:
    with pytest.raises(MissingError, match="recast-eval serve finish"):
        RemoteScorer(f"http://127.0.0.1:{_free_port()}", name=NAME)


@pytest.mark.parametrize("requests", [240, pytest.param(2000, marks=pytest.mark.slow)])
def test_eight_clients_lose_and_swap_nothing_while_the_server_is_killed(requests: int) -> None:
    images, prompts = _cards(50)
    expected = SCORERS.load(NAME).build()(images, prompts)
    answers: dict[int, Scored | Failed] = {}
    port = _free_port()
    process = _start(port)

    def client(first: int) -> None:
        remote = RemoteScorer(f"http://127.0.0.1:{port}", name=NAME, attempts=20)
        for i in range(first, requests, 8):
            answers[i] = remote([images[i % 50]], [prompts[i % 50]])[0]

    threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    try:
        for t in threads:
            t.start()
        while len(answers) < requests // 3:
            time.sleep(0.02)
        process.kill()
        process.wait()
        time.sleep(0.3)
        process = _start(port)
        for t in threads:
            t.join()
    finally:
        process.kill()
        process.wait()
    assert len(answers) == requests
    assert [answers[i] for i in range(requests)] == [expected[i % 50] for i in range(requests)]
