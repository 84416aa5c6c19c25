"""Ask one question: step down, retry, read, raise the budget once."""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from recast_eval.errors import DataError
from recast_eval.judging.cards import JudgeCard, Price
from recast_eval.judging.limits import Limiter
from recast_eval.judging.manner import Manner, build_body, first_manner, step_down, unfit_hint
from recast_eval.judging.money import cost_of
from recast_eval.judging.pictures import Vault
from recast_eval.judging.planning import Question
from recast_eval.judging.prompting import reply_schema
from recast_eval.judging.reading import read_call
from recast_eval.judging.records import Usage
from recast_eval.judging.retrying import Pauses, RetryPolicy, retrying
from recast_eval.judging.store import CallRow, ReplyStore, Spec
from recast_eval.judging.transport import Reply, Transport, TransportError
from recast_eval.records import digest

log = logging.getLogger(__name__)
Emit = Callable[[CallRow], None]


@dataclass(frozen=True, slots=True)
class Answered:
    """How a question ended."""

    state: str
    trouble: str | None
    """Of the transport, if that was the end."""
    cost: float | None
    """US dollars of all its replies; None if one of them did not tell."""
    detail: str = ""


class Asker:
    """Asks questions of one judge at one endpoint.

    Args:
        card: The judge.
        model: What the endpoint calls it.
        transport: Sends one call.
        vault: Pictures.
        limiter: Shared by all questions.
        policy: Of the retries.
        price: To cost the calls, if known.
    """

    def __init__(
        self,
        card: JudgeCard,
        model: str,
        transport: Transport,
        vault: Vault,
        limiter: Limiter,
        policy: RetryPolicy,
        price: Price | None,
    ) -> None:
        self.card, self.model, self.transport, self.vault = card, model, transport, vault
        self.limiter, self.policy, self.price = limiter, policy, price
        self.manner = first_manner(card, transport.base_url)
        self._schema = reply_schema(card)
        self._pauses = Pauses(policy, self._told)

    def reread(self, store: ReplyStore, spec: Spec) -> Callable[[str, CallRow], CallRow]:
        """A reader of replies that came another way: finds their question in the store."""
        asked = {
            ask.key: (json.loads(ask.info)["prompt"], ask.nonce) for ask in store.asks(spec.spec)
        }

        def read(key: str, call: CallRow) -> CallRow:
            prompt, nonce = asked.get(key, ("", None))
            found = read_call(self.card, call, prompt=prompt, nonce=nonce)
            usage = call.usage.model_copy(update={"cost_usd": cost_of(call.usage, self.price)})
            state = found.reason or "ok"
            return replace(call, state=state, detail=found.detail, usage=usage)

        return read

    def _told(self, error: TransportError, pause: float) -> None:
        if error.trouble == "busy":
            self.limiter.was_busy(pause)

    async def ask(self, question: Question, emit: Emit) -> Answered:
        """Ask until there is a final state; every call is emitted, the last one as final."""
        budget = self.card.decoding.max_tokens
        costs: list[float | None] = []
        while True:
            manner = self.manner
            try:
                reply = await self._call(question, manner, budget, emit)
            except TransportError as error:
                if error.trouble == "rejected" and self._step(manner, str(error)):
                    emit(self._failed(question, manner, error, final=False))
                    continue
                said = self._explained(error, manner)
                row = self._failed(question, manner, said, final=True)
                emit(row)
                return Answered(row.state, said.trouble, None, str(said))
            call = self._row(question, manner, reply, budget)
            costs.append(call.usage.cost_usd)
            raised = budget * self.card.decoding.raise_to
            if call.state == "truncated" and budget == self.card.decoding.max_tokens < raised:
                emit(_with(call, final=False))
                budget = raised
                continue
            emit(call)
            known = [c for c in costs if c is not None]
            return Answered(call.state, None, sum(known) if len(known) == len(costs) else None)

    async def body(self, question: Question) -> dict[str, Any]:
        """The request of a question in the present manner, for sending by another way."""
        content = await self._content(question, self.manner)
        budget = self.card.decoding.max_tokens
        return build_body(self.card, self.manner, self.model, content, self._schema, budget)

    async def _call(self, question: Question, manner: Manner, budget: int, emit: Emit) -> Reply:
        """One reply through the one retry layer."""
        content = await self._content(question, manner)
        body = build_body(self.card, manner, self.model, content, self._schema, budget)
        async for attempt in retrying(self.policy, self._pauses):
            with attempt:
                began = time.perf_counter()
                try:
                    async with self.limiter.slot():
                        began = time.perf_counter()
                        reply = await self.transport.complete(
                            body, key=_name(question, body), timeout_s=self.card.timeout_s
                        )
                except TransportError as error:
                    error.seconds = time.perf_counter() - began
                    if error.worth_retrying and (
                        attempt.retry_state.attempt_number < self.policy.attempts
                    ):
                        emit(self._failed(question, manner, error, final=False))
                    raise
        self.limiter.went_well()
        return reply

    async def _content(self, question: Question, manner: Manner) -> str | list[dict[str, Any]]:
        """The message for this manner; plain text for a text-only judge, as all servers take it."""
        texts = [p for p in question.message.parts if isinstance(p, str)]
        if manner.layout == "none":
            return "\n".join(texts)
        detail = self.card.images.detail
        urls: list[str]
        if manner.layout == "side_by_side" and len(question.images) == 2:
            left, right = question.images
            urls = [await self.vault.side_by_side(left, right, question.level), ""]
        else:
            urls = [await self.vault.url(image, question.level) for image in question.images]
        parts: list[dict[str, Any]] = []
        for part in question.message.parts:
            if isinstance(part, str):
                parts.append({"type": "text", "text": part})
            elif urls[part]:
                image = {"url": urls[part], "detail": detail}
                parts.append({"type": "image_url", "image_url": image})
                if len(urls) == 2 and not urls[1]:
                    note = "(One picture holds both: image A is its left part, image B its right.)"
                    parts.append({"type": "text", "text": note})
            else:
                parts.append({"type": "text", "text": "(the right part of the picture above)"})
        return parts

    def _step(self, manner: Manner, message: str) -> bool:
        """Step down; True if there is another manner to try."""
        if manner != self.manner:
            return True  # another question has stepped down meanwhile
        lower = step_down(self.card, manner, message)
        if lower is None:
            return False
        log.info("the endpoint does not take %s; from now on %s", manner.record(), lower.record())
        self.manner = lower
        return True

    def _explained(self, error: TransportError, manner: Manner) -> TransportError:
        """An error that no question can avoid becomes a denial with a hint."""
        hint = unfit_hint(self.card, manner, str(error))
        if hint is None:
            return error
        explained = TransportError("denied", f"{hint} ({error})", status=error.status)
        explained.seconds = error.seconds
        return explained

    def _failed(
        self, question: Question, manner: Manner, error: TransportError, *, final: bool
    ) -> CallRow:
        return CallRow(
            key=question.key,
            state="content_filter" if error.trouble == "filtered" else "transport",
            final=final,
            detail=str(error),
            mode=manner.record(),
            seconds=max(error.seconds, 1e-6),
            at=time.time(),
        )

    def _row(self, question: Question, manner: Manner, reply: Reply, budget: int) -> CallRow:
        mode = manner.record()
        if budget != self.card.decoding.max_tokens:
            mode["max_tokens"] = str(budget)
        if question.level:
            mode["max_side"] = str(self.card.images.max_side >> question.level)
        usage = reply.usage.model_copy(update={"cost_usd": cost_of(reply.usage, self.price)})
        call = CallRow(
            key=question.key,
            state="ok",
            final=True,
            reply=reply.text,
            finish=reply.finish_reason,
            refusal=reply.refusal,
            usage=usage,
            mode=mode,
            model=reply.model or self.model,
            seconds=reply.seconds,
            at=time.time(),
        )
        read = read_call(self.card, call, prompt=question.prompt, nonce=question.message.nonce)
        return _with(call, state=read.reason or "ok", detail=read.detail)


def _name(question: Question, body: dict[str, Any]) -> str:
    """Of a request: the same for the same again, another once anything differs.

    A server that honours it would repeat a reply that was no verdict to the next run, or an error
    to a request that has stepped down.
    """
    content = body["messages"][0]["content"]
    texts = content if isinstance(content, str) else [part.get("text") for part in content]
    rest = {name: value for name, value in body.items() if name != "messages"}
    return digest([question.key, question.turn, rest, texts], 32)


def _with(call: CallRow, **changes: Any) -> CallRow:
    return replace(call, **changes)


def not_asked(key: str, state: str, detail: str) -> CallRow:
    """The row of a question that was not put."""
    return CallRow(key=key, state=state, final=True, detail=detail, usage=Usage(), at=time.time())


def ours(key: str, error: Exception) -> CallRow:
    """The row of a question that failed on our side."""
    state = "image_error" if isinstance(error, DataError) else "internal"
    text = json.dumps(f"{type(error).__name__}: {error}"[:300])[1:-1]
    return not_asked(key, state, text)
