"""Keys: each goes to the endpoint that it is meant for, and none is ever written."""

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.image_folders import make_folder
from support.judge_server import JudgeServer
from typer.testing import CliRunner

import recast_eval.commands
from recast_eval.console import build_app

KEY = "9f8e7d6c5b4a39281706secretsecret"


class Quoting(JudgeServer):
    """Puts the key that it was sent into every answer: an error in a 200, a reply, a batch row."""

    how = "error"

    async def _reply(self, request: web.Request, question: Any) -> web.StreamResponse:
        said = request.headers["Authorization"].split()[1]
        if self.how == "error":
            body = {"error": {"message": f"Incorrect API key provided: {said}", "code": 401}}
        else:
            choice = {"message": {"content": f"I see {said}"}, "finish_reason": "stop"}
            body = {"choices": [choice], "model": f"mock {said}"}
        return web.json_response(body)

    def _batch_row(self, row: dict[str, Any]) -> dict[str, Any]:
        if self.how == "error":
            error = {"message": f"Incorrect API key provided: {KEY}"}
            response = {"status_code": 401, "body": {"error": error}}
            return {"custom_id": row["custom_id"], "response": response, "error": None}
        choice = {"message": {"content": f"I see {KEY}"}, "finish_reason": "stop"}
        body = {"choices": [choice], "model": "mock"}
        response = {"status_code": 200, "body": body}
        return {"custom_id": row["custom_id"], "response": response, "error": None}


def files_with(key: str, root: Path) -> list[Path]:
    return [p for p in root.rglob("*") if p.is_file() and key.encode() in p.read_bytes()]


def command(*words: str) -> Any:
    return CliRunner().invoke(build_app(recast_eval.commands, ""), list(words))


@pytest.mark.parametrize("how", ["error", "reply"])
@pytest.mark.parametrize("batch", [False, True], ids=["calls", "batch"])
def test_a_key_that_the_server_quotes_is_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, batch: bool
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for seed, model in enumerate(("a", "b")):
        make_folder(tmp_path / "images" / model, prompts=1, seed=seed)
    with Quoting() as server:
        server.how = how
        words = ["judge", "--pairwise", "a", "b", "--out", str(tmp_path)]
        words += ["--base-url", server.url, "--model", "mock"]
        for step in ["write", "submit", "collect"] if batch else [None]:
            done = command(*words, *(["--batch", step] if step else []))
            assert KEY not in done.output
    rows = (tmp_path / "verdicts.jsonl").read_text("utf-8").splitlines()
    assert json.loads(rows[0])["axes"]["overall"]["state"] == "unscored"
    assert command("report", str(tmp_path), "--out", str(tmp_path / "r.html")).exit_code == 0
    assert files_with(KEY, tmp_path) == []
