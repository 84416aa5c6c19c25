"""The Batch API at half the price: write request files, submit them, collect the replies.

Same questions, same store, same records as calls; only the way to the model differs.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from recast_eval.errors import DataError
from recast_eval.judging.asking import Asker
from recast_eval.judging.money import call_tokens
from recast_eval.judging.pairs import ImageSet, make_pairs
from recast_eval.judging.pictures import Vault
from recast_eval.judging.planning import Plan, Planner, Question, text_tokens
from recast_eval.judging.secrets import Scrubber
from recast_eval.judging.store import CallRow, ReplyStore, Run, Spec
from recast_eval.judging.transport import OpenAITransport, TransportError, read_completion

log = logging.getLogger(__name__)

Reader = Callable[[str, CallRow], CallRow]
"""Gives the row of a question's reply its state."""

MAX_REQUESTS: Final = 50_000
MAX_BYTES: Final = 180_000_000
"""Below the 200 MB of the API."""
_CUSTOM_ID: Final = re.compile(rb'\{"custom_id": "([^"]+)"')
"""A line without its pictures: the name stands first."""


class BatchClient(Protocol):
    """What is needed of an endpoint."""

    scrub: Scrubber
    """Knows the key."""

    async def upload(self, name: str, file: BinaryIO) -> str:
        """Send a request file; returns its id."""
        ...

    async def start(self, file_id: str) -> str:
        """Start a batch; returns its id."""
        ...

    async def look(self, batch: str) -> dict[str, Any]:
        """State of a batch."""
        ...

    async def download(self, file_id: str) -> bytes:
        """A file's content."""
        ...


class OpenAIBatch:
    """``BatchClient`` over the SDK of a transport."""

    def __init__(self, transport: OpenAITransport) -> None:
        self._client, self._translate = transport.client, transport.translate
        self.scrub = transport.scrub

    async def upload(self, name: str, file: BinaryIO) -> str:
        """See ``BatchClient.upload``."""
        try:
            return str((await self._client.files.create(file=(name, file), purpose="batch")).id)
        except Exception as error:
            raise self._translate(error) from None

    async def start(self, file_id: str) -> str:
        """See ``BatchClient.start``."""
        try:
            made = await self._client.batches.create(
                input_file_id=file_id, endpoint="/v1/chat/completions", completion_window="24h"
            )
        except Exception as error:
            raise self._translate(error) from None
        return str(made.id)

    async def look(self, batch: str) -> dict[str, Any]:
        """See ``BatchClient.look``."""
        try:
            return dict((await self._client.batches.retrieve(batch)).model_dump())
        except Exception as error:
            raise self._translate(error) from None

    async def download(self, file_id: str) -> bytes:
        """See ``BatchClient.download``."""
        try:
            return bytes((await self._client.files.content(file_id)).content)
        except Exception as error:
            raise self._translate(error) from None


@dataclass(frozen=True, slots=True)
class Collected:
    """What ``collect`` found."""

    done: int
    """Batches whose replies are in the store now."""
    waiting: tuple[str, ...]
    """`batch: state` of those that are not finished."""
    replies: int


def batch_folder(out: Path, spec: Spec) -> Path:
    """Where request files of a judge lie."""
    return out / "batch" / spec.spec


async def write_requests(
    spec: Spec, sets: tuple[ImageSet, ...], store: ReplyStore, out: Path, asker: Asker, vault: Vault
) -> tuple[Plan, list[Path]]:
    """Write what is not known yet as request files; nothing is sent.

    Returns:
        The plan, and the files.
    """
    store.register(spec)
    planner = Planner(spec, vault, store, elsewhere=submitted_keys(spec, store, out))
    plan = planner.plan(make_pairs(sets), Run("", []))
    folder = batch_folder(out, spec)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("requests-*.jsonl"):
        old.unlink()
    files: list[Path] = []
    file: Any = None
    size = count = 0
    try:
        for item in plan.pending:
            question = planner.question(*item)
            body = await asker.body(question)
            line = _line(question, body)
            if file is None or count >= MAX_REQUESTS or size + len(line) > MAX_BYTES:
                if file is not None:
                    file.close()
                files.append(folder / f"requests-{len(files):03d}.jsonl")
                file, size, count = files[-1].open("wb"), 0, 0
            file.write(line)
            size, count = size + len(line), count + 1
    finally:
        if file is not None:
            file.close()
    return plan, files


def _line(question: Question, body: dict[str, Any]) -> bytes:
    row = {
        "custom_id": question.key,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": body,
    }
    return json.dumps(row, allow_nan=False).encode() + b"\n"


def submitted_keys(spec: Spec, store: ReplyStore, out: Path) -> frozenset[str]:
    """Questions in batches that were submitted and not collected yet."""
    folder = batch_folder(out, spec)
    found: set[str] = set()
    for batch, _ in store.open_batches(spec.spec):
        path = folder / f"submitted-{batch}.jsonl"
        if path.is_file():
            with path.open("rb") as file:
                names = (_CUSTOM_ID.match(line) for line in file)
                found.update(name[1].decode() for name in names if name)
    return frozenset(found)


def written_tokens(spec: Spec, out: Path) -> tuple[int, int]:
    """(input, output) tokens that the request files of a judge may take at most, by estimate."""
    sent = made = 0
    for path in sorted(batch_folder(out, spec).glob("requests-*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                content = json.loads(line)["body"]["messages"][0]["content"]
                parts = [{"text": content}] if isinstance(content, str) else content
                text = text_tokens("\n".join(part.get("text", "") for part in parts))
                tokens = call_tokens(spec.card, text)
                sent, made = sent + tokens[0], made + tokens[1]
    return sent, made


async def submit(spec: Spec, store: ReplyStore, out: Path, client: BatchClient) -> list[str]:
    """Send the request files that were written; each once.

    Raises:
        DataError: Nothing was written.
    """
    folder = batch_folder(out, spec)
    files = sorted(folder.glob("requests-*.jsonl"))
    if not files:
        raise DataError("no request files: run with --batch write first", path=folder)
    started = []
    for path in files:
        with path.open("rb") as file:
            batch = await client.start(await client.upload(path.name, file))
        store.put_batch(batch, spec.spec, path.name)
        path.rename(path.with_name(f"submitted-{batch}.jsonl"))
        started.append(batch)
    return started


async def collect(spec: Spec, store: ReplyStore, client: BatchClient, read: Reader) -> Collected:
    """Fetch the replies of finished batches into the store."""
    done = replies = 0
    waiting = []
    with store.running(spec.spec) as run:
        for batch, _ in store.open_batches(spec.spec):
            state = await client.look(batch)
            if state.get("status") not in ("completed", "failed", "expired", "cancelled"):
                waiting.append(f"{batch}: {state.get('status')}")
                continue
            for name in ("output_file_id", "error_file_id"):
                if state.get(name):
                    rows = list(_rows(await client.download(state[name]), read, client.scrub))
                    store.write(run, rows)
                    replies += sum(row.reply is not None for row in rows)
            store.close_batch(batch)
            done += 1
    return Collected(done, tuple(waiting), replies)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """A line of replies; None if it is none. One odd line must not hold up all the others."""

    def whole(digits: str) -> int | float:
        return int(digits) if len(digits) < 400 else float(digits)  # Python refuses 4300 digits

    try:
        row = json.loads(line, parse_int=whole)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _rows(data: bytes, read: Reader, scrub: Scrubber) -> Iterator[CallRow]:
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        row = _parsed(line)
        if row is None:
            log.warning("a line of the batch's replies cannot be read: %.80r", line)
            continue
        key = str(row.get("custom_id"))
        response = row["response"] if isinstance(row.get("response"), dict) else {}
        failed = CallRow(key=key, state="transport", final=True, seconds=1e-6)
        if response.get("status_code") != 200:
            said = scrub(json.dumps(scrub.within(row.get("error") or response.get("body"))))[:300]
            yield replace(failed, detail=f"batch: {said}")
            continue
        try:
            reply = read_completion(response.get("body"), 1e-6, scrub)
        except TransportError as error:
            yield replace(failed, detail=f"batch: {error}")
            continue
        yield read(
            key,
            CallRow(
                key=key,
                state="ok",
                final=True,
                reply=reply.text,
                finish=reply.finish_reason,
                refusal=reply.refusal,
                usage=reply.usage,
                mode={"way": "batch"},
                model=reply.model,
                seconds=1e-6,
            ),
        )
