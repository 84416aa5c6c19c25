"""Keys: each goes to the endpoint that it is meant for, and none is ever written."""

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.image_folders import make_folder
from support.judge_server import JudgeServer, Script
from support.judging import World
from typer.testing import CliRunner

import recast_eval.commands
from recast_eval.console import build_app
from recast_eval.errors import ConfigError
from recast_eval.judging.audit_null import judges_to_ask
from recast_eval.judging.cards import JudgeCard, Juror, load_card
from recast_eval.judging.executor import Options
from recast_eval.judging.workflow import Bench, Endpoint, find_endpoint, judge

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


class Noting(JudgeServer):
    """Remembers which keys came."""

    def __init__(self) -> None:
        super().__init__(Script(models=None))
        self.bearers: set[str | None] = set()

    async def _route(self, request: web.Request) -> web.StreamResponse:
        self.bearers.add(request.headers.get("Authorization"))
        return await super()._route(request)


NO_KEY = "Bearer none"  # what the SDK sends where there is none


def card_in(folder: Path, **changes: Any) -> str:
    """A copy of ``pairwise-v1`` with other values."""
    card = load_card("pairwise-v1").model_dump(mode="json", exclude={"template_text"}) | changes
    folder.mkdir()
    (folder / "judge.yaml").write_text(json.dumps(card), "utf-8")
    return str(folder)


@pytest.fixture
def _two_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai-0123456789")
    monkeypatch.setenv("MY_KEY", "sk-mine-0123456789")


@pytest.mark.usefixtures("_two_keys")
def test_a_juror_elsewhere_gets_only_a_key_that_is_named_for_it(tmp_path: Path) -> None:
    world = World.make(tmp_path, prompts=1)
    mine = card_in(tmp_path / "mine", name="mine-v1", endpoint={"api_key_env": "MY_KEY"})
    with Noting() as run, Noting() as bare, Noting() as named, Noting() as own:
        members = [
            {"judge": "pairwise-v1"},
            {"judge": "pairwise-v1", "base_url": bare.url},
            {"judge": "pairwise-v1", "base_url": named.url, "api_key_env": "MY_KEY"},
            {"judge": mine, "base_url": own.url},
        ]
        jury = JudgeCard(name="j-v1", kind="jury", what="", axes={"overall": "q"}, jury=members)
        bench = Bench((jury,), Endpoint(run.url, "mock"), world.sets)
        judge(bench, tmp_path / "out", Options())
    assert run.bearers == {"Bearer sk-openai-0123456789"}
    assert bare.bearers == {NO_KEY}
    assert named.bearers == own.bearers == {"Bearer sk-mine-0123456789"}
    openai = Juror(judge="pairwise-v1", base_url="https://api.openai.com/v1")
    seats = Bench(
        (jury.model_copy(update={"jury": (openai,)}),), Endpoint("http://h/v1", "m"), world.sets
    ).seats()
    assert [s.endpoint.api_key_env for s in seats] == ["OPENAI_API_KEY"]


def test_where_a_key_comes_from_is_not_content() -> None:
    jury = load_card("jury-offline-v1")
    with_key = jury.model_copy(
        update={"jury": (jury.jury[0].model_copy(update={"api_key_env": "K"}), *jury.jury[1:])}
    )
    assert with_key.digest == jury.digest


@pytest.mark.usefixtures("_two_keys")
def test_each_card_sends_its_own_key_and_the_audit_does_too(tmp_path: Path) -> None:
    for seed, model in enumerate(("a", "b")):
        make_folder(tmp_path / "images" / model, prompts=1, seed=seed)
    mine = card_in(tmp_path / "mine", name="mine-v1", endpoint={"api_key_env": "MY_KEY"})
    with Noting() as server:
        where = ["--base-url", server.url, "--model", "mock"]
        words = ["judge", "--pairwise", "a", "b", "--out", str(tmp_path), *where]
        done = command(*words, "--judge", "pairwise-strict-v1", "--judge", mine)
        assert done.exit_code == 0, done.output
        assert server.bearers == {"Bearer sk-openai-0123456789", "Bearer sk-mine-0123456789"}
        server.bearers.clear()
        done = command("audit", str(tmp_path), "--ask", "--judge", mine, *where)
        assert server.bearers == {"Bearer sk-mine-0123456789"}


@pytest.mark.usefixtures("_two_keys")
def test_a_url_that_only_a_file_names_gets_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World.make(tmp_path, prompts=1)
    with Noting() as server:
        judge(
            Bench((load_card("pairwise-v1"),), Endpoint(server.url, "m"), world.sets),
            tmp_path,
            Options(),
        )
    records = [
        r.model_copy(update={"base_url": "http://far.example/v1"}) for r in world.records("")
    ]
    (asked,) = judges_to_ask(records, [], None, None)
    assert asked.api_key_env == ""
    (asked,) = judges_to_ask(records, [], "http://far.example/v1", None)
    assert asked.api_key_env is None
    monkeypatch.setenv("OPENAI_BASE_URL", "http://far.example:80/v1")
    (asked,) = judges_to_ask(records, [], None, None)
    assert asked.api_key_env is None


def test_cards_that_name_different_endpoints_are_not_asked_at_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"base_url_env": "MY_URL", "model_env": "MY_MODEL", "api_key_env": "MY_KEY"}
    cards = [load_card("pairwise-v1"), load_card(card_in(tmp_path / "c", endpoint=own))]
    for name, value in (("OPENAI_BASE_URL", "http://one/v1"), ("RECAST_JUDGE_MODEL", "m")):
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="MY_URL"):
        find_endpoint(cards, None, None)
    monkeypatch.setenv("MY_URL", "http://two/v1")
    monkeypatch.setenv("MY_MODEL", "m")
    with pytest.raises(ConfigError, match=r"http://one/v1.*http://two/v1"):
        find_endpoint(cards, None, None)
    assert find_endpoint(cards, "http://both/v1", "m") == Endpoint("http://both/v1", "m")
