"""The one thing in judging that touches the network.

``Transport`` is small so that a test, a queue or another SDK can stand in. It does not retry:
there is one retry layer, in ``retrying``.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from recast_eval.errors import JudgeError
from recast_eval.judging.records import Usage
from recast_eval.judging.secrets import Scrubber, is_loopback

Trouble = Literal[
    "busy",  # 429 or overloaded: wait, and go slower
    "unstable",  # dropped, timed out, 5xx, nonsense instead of JSON: try again
    "rejected",  # 400 and its kind: this request is not accepted as it is
    "filtered",  # the endpoint will not judge this content
    "denied",  # key, quota or model: no request will do
]


class TransportError(JudgeError):
    """A call brought no reply."""

    def __init__(
        self,
        trouble: Trouble,
        message: str,
        *,
        status: int | None = None,
        retry_after: str | None = None,
    ) -> None:
        self.trouble: Trouble = trouble
        self.status = status
        self.retry_after = retry_after
        self.seconds = 0.0
        super().__init__(message)

    @property
    def worth_retrying(self) -> bool:
        """Whether the same request may succeed later."""
        return self.trouble in ("busy", "unstable")


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, whole."""

    text: str
    finish_reason: str | None
    usage: Usage
    model: str = ""
    """As the endpoint names it."""
    refusal: str | None = None
    seconds: float = 0.0
    raw: Mapping[str, Any] = field(default_factory=dict)


class Transport(Protocol):
    """Sends one chat completion."""

    base_url: str

    async def complete(self, body: dict[str, Any], *, key: str, timeout_s: float) -> Reply:
        """Send ``body`` once.

        Args:
            body: A chat-completions request.
            key: Names the question; sent so that an endpoint can spot a repetition.
            timeout_s: For the whole answer, however slowly it drips.

        Raises:
            TransportError: No usable reply.
        """
        ...

    async def models(self) -> list[str]:
        """Model ids that the endpoint lists."""
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...


class OpenAITransport:
    """Any OpenAI-compatible endpoint, through ``AsyncOpenAI`` without its own retries.

    Args:
        base_url: Up to and with ``/v1``.
        api_key: Only ever held by the client and the scrubber.
    """

    def __init__(self, base_url: str, api_key: str | None = None) -> None:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        self.base_url = base_url
        self.scrub = Scrubber(api_key)
        self.keyed = bool(api_key)
        # A proxy from the environment cannot reach this machine's own servers.
        client = DefaultAsyncHttpxClient(trust_env=False) if is_loopback(base_url) else None
        self.client = AsyncOpenAI(
            base_url=base_url, api_key=api_key or "none", max_retries=0, http_client=client
        )

    async def complete(self, body: dict[str, Any], *, key: str, timeout_s: float) -> Reply:
        """See ``Transport.complete``."""
        import asyncio

        began = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s):
                # post, not chat.completions.create: the body is exact already, and building and
                # validating typed copies of two pictures costs more than all the rest.
                data = await self.client.post(
                    "/chat/completions",
                    body=body,
                    cast_to=object,
                    options={"headers": {"Idempotency-Key": key}},
                )
        except TimeoutError:
            raise TransportError("unstable", f"no whole answer within {timeout_s:g} s") from None
        except Exception as error:
            raise self.translate(error) from None
        return read_completion(data, time.perf_counter() - began, self.scrub)

    async def models(self) -> list[str]:
        """See ``Transport.models``."""
        try:
            data = await self.client.get("/models", cast_to=object, options={"timeout": 15})
        except Exception as error:
            raise self.translate(error) from None
        rows = data.get("data") if isinstance(data, dict) else None
        if not isinstance(rows, list):
            raise TransportError("rejected", "the list of models is not JSON of the usual form")
        return [self.scrub(str(r["id"])) for r in rows if isinstance(r, dict) and "id" in r]

    async def aclose(self) -> None:
        """See ``Transport.aclose``."""
        await self.client.close()

    def translate(self, error: Exception) -> TransportError:
        """An SDK error in our words, without keys. What we do not know is raised again."""
        import openai

        if isinstance(error, openai.APIStatusError):
            return self._from_status(error)
        if isinstance(error, openai.APITimeoutError):
            return TransportError("unstable", "timed out")
        if isinstance(error, openai.APIConnectionError):
            cause = error.__cause__ or error
            return TransportError("unstable", self.scrub(f"{type(cause).__name__}: {cause}")[:300])
        if isinstance(error, (openai.APIError, json.JSONDecodeError, UnicodeDecodeError)):
            return TransportError("unstable", self.scrub(f"{type(error).__name__}: {error}")[:300])
        raise error

    def _from_status(self, error: Any) -> TransportError:
        body = error.body if isinstance(error.body, dict) else {}
        code = str(body.get("code") or body.get("type") or "")
        text = str(body.get("message") or error.message)
        return TransportError(
            trouble_of(error.status_code, code, text),
            self.scrub(f"HTTP {error.status_code} {code} {text}")[:400],
            status=error.status_code,
            retry_after=retry_after_of(error.response.headers),
        )


def retry_after_of(headers: Mapping[str, str]) -> str | None:
    """The Retry-After header, or its millisecond cousin in seconds."""
    exact = headers.get("retry-after-ms", "")
    if exact.isascii() and exact.isdigit() and len(exact) < 12:
        return str(int(exact) / 1000)
    return headers.get("retry-after")


def trouble_of(status: int, code: str, text: str) -> Trouble:
    """What a failing status means for this request and for the next ones."""
    said = f"{code} {text}".lower()
    if status == 429:
        return "denied" if "insufficient_quota" in said or "billing" in said else "busy"
    if status in (503, 529):
        return "busy"
    if status in (401, 403):
        return "filtered" if _is_policy(said) else "denied"
    if status in (408, 409, 425) or status >= 500:
        return "unstable"
    if status == 404:
        return "denied"
    return "filtered" if _is_policy(said) else "rejected"


def _is_policy(said: str) -> bool:
    marks = (
        "content_policy",
        "content policy",
        "content_filter",
        "content management",
        "moderation",
    )
    return any(mark in said for mark in (*marks, "safety system", "policy_violation"))


def read_completion(data: object, seconds: float, scrub: Scrubber) -> Reply:
    """Read a chat completion; nothing leaves with a key in it.

    Args:
        data: The answer, as JSON.
        seconds: How long it took.
        scrub: Knows the key that was sent: a server may quote it anywhere.

    Raises:
        TransportError: It has not that form (HTML, an error in a 200, no choices).
    """
    data = scrub.within(data)
    if not isinstance(data, dict):
        said = scrub(str(data)).strip()[:80]  # cut afterwards: half a key is no longer found
        raise TransportError("unstable", f"the answer is not JSON: {said!r}")
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        said = scrub(json.dumps(data.get("error") or data))[:160]
        raise TransportError("unstable", f"the answer has no choices: {said}")
    choice = choices[0]
    message = choice["message"] if isinstance(choice.get("message"), dict) else {}
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(p.get("text", "")) for p in content if isinstance(p, dict))
    refusal = message.get("refusal")
    return Reply(
        text=content if isinstance(content, str) else "",
        finish_reason=_text_or_none(choice.get("finish_reason")),
        usage=read_usage(data.get("usage")),
        model=str(data.get("model") or ""),
        refusal=refusal if isinstance(refusal, str) and refusal.strip() else None,
        seconds=seconds,
        raw=data,
    )


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def read_usage(data: object) -> Usage:
    """Token counts of a reply; what it does not say stays unknown."""
    if not isinstance(data, dict):
        return Usage()

    def count(source: object, name: str) -> int | None:
        value = source.get(name) if isinstance(source, dict) else None
        return value if type(value) is int and 0 <= value < 2**53 else None

    sent, made = data.get("prompt_tokens_details"), data.get("completion_tokens_details")
    return Usage(
        input_tokens=count(data, "prompt_tokens"),
        output_tokens=count(data, "completion_tokens"),
        reasoning_tokens=count(made, "reasoning_tokens"),
        image_tokens=count(sent, "image_tokens"),
        cached_tokens=count(sent, "cached_tokens"),
    )
