"""An OpenAI-compatible judge on the loopback that answers by rule and misbehaves on demand.

What happens to a question is a function of the question (and of how often it came), so that a
killed and resumed client meets the same world as an undisturbed one. As a program it serves
benchmarks: ``python judge_server.py --delay 0.05`` prints its port.
"""

import argparse
import asyncio
import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

from aiohttp import web

_NONCE = re.compile(r"<prompt-([0-9a-f]+)>")
_AXIS = re.compile(r"^- (\w+): ", re.MULTILINE)


@dataclass
class Question:
    """What the server understood of a request."""

    body: dict[str, Any]
    text: str
    images: list[str]
    seen: int
    """How often it came before."""

    @property
    def digest(self) -> str:
        return hashlib.sha256((self.text + "".join(self.images)).encode()).hexdigest()

    def draw(self, salt: str) -> float:
        """A number in [0, 1) that belongs to the question."""
        return int(hashlib.sha256(f"{salt}{self.digest}".encode()).hexdigest()[:8], 16) / 2**32


def honest(question: Question) -> dict[str, Any]:
    """Prefers the image with the greater digest (grades it so): consistent in both orders."""
    if "\n- Grades are whole numbers" in question.text:
        return dict.fromkeys(_AXIS.findall(question.text), int(question.images[0][0], 16) % 10 + 1)
    first = len(question.images) < 2 or question.images[0] > question.images[1]
    if '"better_response"' in question.text:  # GenArena's contract, for benchmarks
        score = 5 if first else 2
        return {"better_response": "AB"[not first], "score": score, "confidence": 0.5}
    return dict.fromkeys(_AXIS.findall(question.text), "A" if first else "B")


def always(token: Any) -> Callable[[Question], dict[str, Any]]:
    """Says the same whatever it is shown."""
    return lambda question: dict.fromkeys(_AXIS.findall(question.text), token)


@dataclass
class Script:
    """How the server behaves; shares are of questions, the first time that they come."""

    verdict: Callable[[Question], dict[str, Any]] = honest
    delay_s: float = 0.0
    busy: float = 0.0
    retry_after: list[str | None] = field(default_factory=lambda: ["0", "date", None])
    """Taken in turn; ``date`` is now as an HTTP date."""
    drop: float = 0.0
    malformed: float = 0.0
    """Of all comings: the reply stays malformed."""
    refuse: float = 0.0
    filtered: float = 0.0
    truncate: float = 0.0
    """The first time only, unless the budget is raised."""
    html: float = 0.0
    no_choices: float = 0.0
    honours_keys: bool = False
    """The same Idempotency-Key gets the same reply, for nothing."""
    usage: bool = True
    tokens: tuple[int, int] = (1000, 50)
    """(input, output) that each reply says it took."""
    reject: dict[str, str] = field(default_factory=dict)
    """Key of the request -> message of a 400."""
    one_image: bool = False
    models: list[str] | None = field(default_factory=lambda: ["mock"])
    trickle_s: float = 0.0
    replay: Callable[[Question], str] | None = None
    """Gives the whole text of a reply instead."""
    prefix: str = "/v1"
    key: str | None = None
    down: bool = False


class JudgeServer:
    """The server, in a thread of its own; use as a context manager."""

    def __init__(self, script: Script | None = None, port: int = 0) -> None:
        self.script = script or Script()
        self.port = port
        self.arrived: Counter[str] = Counter()
        """Idempotency key -> times that it came."""
        self.paid: Counter[str] = Counter()
        """Question -> replies delivered whole for the first time under their key."""
        self.delivered: Counter[str] = Counter()
        """Question -> replies delivered whole."""
        self.keys: list[str] = []
        """Idempotency keys in the order that they came, rejected requests too."""
        self._kept: dict[str, bytes] = {}
        self.bodies: list[dict[str, Any]] = []
        self.keep_bodies = False
        self.in_flight = self.peak = 0
        self.statuses: Counter[int] = Counter()
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self._turn = 0
        self._questions: Counter[str] = Counter()
        self._ready = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.script.prefix}"

    @property
    def calls(self) -> int:
        return sum(self.delivered.values())

    def __enter__(self) -> "JudgeServer":
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.run(self.serve())

    async def serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._route)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port)
        await site.start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _route(self, request: web.Request) -> web.StreamResponse:
        path, prefix = request.path, self.script.prefix
        if self.script.down:
            request.transport.abort()
            return web.Response()
        if self.script.key and request.headers.get("Authorization") != f"Bearer {self.script.key}":
            said = f"Incorrect API key provided: {request.headers.get('Authorization')}"
            return _error(401, said, "invalid_api_key")
        if path == f"{prefix}/chat/completions":
            return await self._complete(request)
        if path == f"{prefix}/models" and self.script.models is not None:
            rows = [{"id": name, "object": "model"} for name in self.script.models]
            return web.json_response({"object": "list", "data": rows})
        if path.startswith((f"{prefix}/files", f"{prefix}/batches")):
            return await self._batch(request, path[len(prefix) :])
        return _error(404, "not found", "not_found")

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        if self.keep_bodies:
            self.bodies.append(body)
        self.keys.append(request.headers.get("Idempotency-Key", ""))
        if self.script.honours_keys and self.keys[-1] in self._kept:
            body = self._kept[self.keys[-1]]
            return web.Response(body=body, content_type="application/json")
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            if self.script.delay_s:
                await asyncio.sleep(self.script.delay_s)
            response = await self._answer(request, self._understand(body))
        finally:
            self.in_flight -= 1
        self.statuses[response.status] += 1
        return response

    def _understand(self, body: dict[str, Any]) -> Question:
        content = body["messages"][-1]["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        text = "\n".join(p["text"] for p in parts if p["type"] == "text")
        images = [
            hashlib.sha256(p["image_url"]["url"].encode()).hexdigest()
            for p in parts
            if p["type"] == "image_url"
        ]
        question = Question(body, text, images, 0)
        question.seen = self._questions[question.digest]
        self._questions[question.digest] += 1
        return question

    async def _answer(self, request: web.Request, question: Question) -> web.StreamResponse:
        script = self.script
        for name, message in script.reject.items():
            if name in question.body and not (
                name == "response_format" and message not in json.dumps(question.body[name])
            ):
                return _error(
                    400, f"Unsupported parameter: '{name}' ({message})", "invalid_request"
                )
        if script.one_image and len(question.images) > 1:
            return _error(400, "At most 1 image(s) may be provided in one request.", "bad_request")
        if question.draw("filter") < script.filtered:
            return _error(400, "blocked by our content_policy", "content_policy_violation")
        if question.seen == 0:
            if question.draw("busy") < script.busy:
                return self._busy()
            if question.draw("drop") < script.drop:
                request.transport.abort()
                return web.Response()
            if question.draw("html") < script.html:
                page = "<html><body>502 Bad Gateway</body></html>"
                return web.Response(status=502, text=page, content_type="text/html")
            if question.draw("choices") < script.no_choices:
                return web.json_response({"choices": []})
        return await self._reply(request, question)

    def _busy(self) -> web.Response:
        after = self.script.retry_after[self._turn % len(self.script.retry_after)]
        self._turn += 1
        headers = {}
        if after is not None:
            headers["Retry-After"] = formatdate(usegmt=True) if after == "date" else after
        return _error(429, "slow down", "rate_limit_exceeded", headers)

    async def _reply(self, request: web.Request, question: Question) -> web.StreamResponse:
        script = self.script
        nonce = _NONCE.search(question.text)
        answer = {"ticket": nonce[1] if nonce else "", "reason": "by rule"}
        text: str | None = json.dumps(answer | script.verdict(question))
        finish, refusal = "stop", None
        budget = question.body.get("max_tokens") or question.body.get("max_completion_tokens") or 0
        if script.replay is not None:
            text = script.replay(question)
        elif question.draw("malformed") < script.malformed:
            text = "Both are lovely images, A for colour and B for form."
        elif question.draw("refuse") < script.refuse:
            text, refusal = None, "I'm sorry, I can't help with that."
        elif question.draw("truncate") < script.truncate and budget <= 1000:
            text, finish = text[: len(text) // 2] if text else "", "length"
        message = {"role": "assistant", "content": text, "refusal": refusal}
        data = {
            "id": "x",
            "object": "chat.completion",
            "model": question.body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": _usage(*script.tokens) if script.usage else None,
        }
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        payload = json.dumps(data).encode()
        self._kept[request.headers.get("Idempotency-Key", "")] = payload
        response.content_length = len(payload)
        await response.prepare(request)
        if script.trickle_s:
            for byte in payload:
                await response.write(bytes([byte]))
                await asyncio.sleep(script.trickle_s)
        else:
            await response.write(payload)
        await response.write_eof()
        key = request.headers.get("Idempotency-Key", "")
        self.delivered[question.digest] += 1
        self.arrived[key] += 1
        if self.arrived[key] == 1:
            self.paid[question.digest] += 1
        return response

    async def _batch(self, request: web.Request, path: str) -> web.StreamResponse:
        """The Batch API: files in, files out, done at once."""
        if path == "/files" and request.method == "POST":
            form = await request.post()
            name = f"file-{len(self.files)}"
            self.files[name] = form["file"].file.read()
            return web.json_response({"id": name, "object": "file", "purpose": "batch"})
        if path.startswith("/files/") and path.endswith("/content"):
            return web.Response(body=self.files[path.split("/")[2]])
        if path == "/batches" and request.method == "POST":
            asked = await request.json()
            rows = [
                json.loads(line) for line in self.files[asked["input_file_id"]].split(b"\n") if line
            ]
            out = [self._batch_row(row) for row in rows]
            name = f"out-{len(self.batches)}"
            self.files[name] = "\n".join(map(json.dumps, out)).encode() + b"\n"
            batch = {
                "id": f"batch-{len(self.batches)}",
                "object": "batch",
                "status": "completed",
                "output_file_id": name,
                "error_file_id": None,
                "input_file_id": asked["input_file_id"],
            }
            self.batches[batch["id"]] = batch
            return web.json_response(batch)
        return web.json_response(self.batches[path.split("/")[2]])

    def _batch_row(self, row: dict[str, Any]) -> dict[str, Any]:
        question = self._understand(row["body"])
        nonce = _NONCE.search(question.text)
        text = json.dumps({"ticket": nonce[1] if nonce else ""} | self.script.verdict(question))
        choice = {"index": 0, "finish_reason": "stop", "message": {"content": text}}
        self.delivered[question.digest] += 1
        body = {"model": "mock", "choices": [choice], "usage": _usage(*self.script.tokens)}
        return {
            "custom_id": row["custom_id"],
            "response": {"status_code": 200, "body": body},
            "error": None,
        }


def _usage(sent: int, made: int) -> dict[str, Any]:
    return {
        "prompt_tokens": sent,
        "completion_tokens": made,
        "total_tokens": sent + made,
        "completion_tokens_details": {"reasoning_tokens": 10},
    }


def _error(
    status: int, message: str, code: str, headers: dict[str, str] | None = None
) -> web.Response:
    body = {"error": {"message": message, "type": code, "code": code}}
    return web.json_response(body, status=status, headers=headers)


def main() -> None:
    """Serve until killed; print the port."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    server = JudgeServer(Script(delay_s=arguments.delay), port=arguments.port)

    async def run() -> None:
        task = asyncio.create_task(server.serve())
        while not server._ready.is_set():
            await asyncio.sleep(0.01)
        print(server.port, flush=True)  # noqa: T201 - its caller reads it
        await task

    asyncio.run(run())


if __name__ == "__main__":
    main()
