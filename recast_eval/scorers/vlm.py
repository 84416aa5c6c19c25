"""Scores that a vision-language model gives through an OpenAI-compatible endpoint.

The scorer says which question is asked and how a reply is read; what a reply does not say in the
form asked for is a failure of its kind, never a number.
"""

import base64
import logging
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from recast_eval.chat import Terms, ease, first_terms, key_from, parameters, serves
from recast_eval.errors import MissingError
from recast_eval.images import encode_for_judge
from recast_eval.records import Failed, Scored, digest
from recast_eval.scorers.base import ScorerCard
from recast_eval.scorers.each import check_batch

log = logging.getLogger(__name__)
KEY_VARIABLE: Final = "OPENAI_API_KEY"
LIMIT: Final = 256
"""Tokens of a reply."""
RAISED: Final = 4096
"""After a reply that was cut: a model that thinks needs them."""
MAX_SIDE, MIN_SIDE = 1024, 28
IMAGES: Final = f"PNG, longer side reduced to {MAX_SIDE}, shorter enlarged from below {MIN_SIDE}"
"""For cards: lossless, since a lossy file would be another picture."""
SLOT: Final = "{prompt}"


class Endpoint(NamedTuple):
    """Who is asked."""

    base_url: str
    model: str


def find_endpoint(card: ScorerCard, given: str | None, variable: str) -> Endpoint:
    """``URL#MODEL`` from the argument or an environment variable.

    Raises:
        MissingError: Neither is set, or it has another form or holds a secret.
    """
    text = given or os.environ.get(variable, "")
    url, _, model = text.partition("#")
    remedy = f"set {variable}=http://127.0.0.1:8000/v1#MODEL, or give it as the scorer's weights"
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname or not model.strip():
        raise MissingError(f"scorer {card.name} asks a server: {remedy}")
    if parts.username or parts.password or parts.query:
        raise MissingError(
            f"scorer {card.name}: its URL holds a user, password or query; the key belongs in "
            f"{KEY_VARIABLE}"
        )
    return Endpoint(url.strip().rstrip("/"), model.strip())


class VlmScorer:
    """Asks one question an image, several at a time; the SDK repeats what is worth repeating.

    What the model does not take (``max_tokens``, a temperature) is learnt from its first refusal
    and left out from then on; so is a limit that cut a reply.

    Args:
        card: Of the question; the endpoint, model and question are written into it.
        endpoint: Who is asked.
        question: Text with ``{prompt}`` where the prompt goes.
        read: A reply to its outcome.
        threads: Questions under way at once.
        attempts: Tries of a question before it is ``Failed`` ("transport").
        timeout_s: Of one try.

    Raises:
        MissingError: Nobody answers there, the key is refused, or the model is not served.
    """

    def __init__(
        self,
        card: ScorerCard,
        endpoint: Endpoint,
        question: str,
        read: Callable[[str], Scored | Failed],
        *,
        threads: int = 8,
        attempts: int = 5,
        timeout_s: float = 120.0,
    ) -> None:
        from openai import DefaultHttpxClient, OpenAI

        self._endpoint, self._question, self._read = endpoint, question, read
        self._threads, self._key = threads, key_from(KEY_VARIABLE) or "none"
        self._terms, self._limit = first_terms(endpoint.base_url), LIMIT
        self._learning = threading.Lock()
        host = urlsplit(endpoint.base_url).hostname or ""
        # A proxy from the environment cannot reach this machine's own servers.
        local = host in ("localhost", "::1") or host.startswith("127.")
        self._client = OpenAI(
            base_url=endpoint.base_url,
            api_key=self._key,
            max_retries=attempts - 1,
            timeout=timeout_s,
            http_client=DefaultHttpxClient(trust_env=not local),
        )
        weakref.finalize(self, self._client.close)  # a scorer has no end of its own
        self.card = replace(
            card, weights="#".join(endpoint), revision=digest({"question": question})
        )
        self._look()

    def _look(self) -> None:
        """One cheap question before any picture is drawn."""
        import openai

        place = self._endpoint.base_url
        try:
            data: Any = self._client.get("/models", cast_to=object, options={"timeout": 15})
        except (openai.AuthenticationError, openai.PermissionDeniedError):
            raise MissingError(
                f"scorer {self.card.name}: {place} refuses the key in {KEY_VARIABLE}"
            ) from None
        except openai.APIStatusError:
            return  # not every server lists its models
        except openai.APIError as error:
            raise MissingError(
                f"scorer {self.card.name}: nobody answers at {place} ({type(error).__name__})"
            ) from None
        rows = data.get("data") if isinstance(data, dict) else None
        names = [str(r["id"]) for r in rows or () if isinstance(r, dict) and "id" in r]
        if names and not serves(names, self._endpoint.model):
            served = ", ".join(names[:5])
            raise MissingError(
                f"scorer {self.card.name}: {place} serves {served}, not {self._endpoint.model}"
            )

    def __call__(
        self, images: Sequence[np.ndarray], prompts: Sequence[str]
    ) -> list[Scored | Failed]:
        """See ``Scorer``."""
        check_batch(images, prompts)
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(self._one, images, prompts))

    def _one(self, pixels: np.ndarray, prompt: str) -> Scored | Failed:
        png = encode_for_judge(pixels, max_side=MAX_SIDE, min_side=MIN_SIDE)
        url = f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
        # str.format would read braces in the prompt.
        text = self._question.replace(SLOT, prompt)
        content: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "text", "text": text},
        ]
        while True:
            terms, limit = self._terms, self._limit
            got = self._ask(content, terms, limit)
            if isinstance(got, Terms):
                continue
            if isinstance(got, Failed) and got.reason == "truncated" and limit < RAISED:
                self._limit = RAISED
                continue
            if isinstance(got, Scored) and terms.unsampled:
                without = {"without": ", ".join(terms.unsampled)}
                return got.model_copy(update={"detail": got.detail | without})
            return got

    def _ask(
        self, content: list[dict[str, Any]], terms: Terms, limit: int
    ) -> Scored | Failed | Terms:
        """One try; terms where those that it was sent under are not taken but others are left."""
        import openai

        body = {
            "model": self._endpoint.model,
            "messages": [{"role": "user", "content": content}],
            **parameters(terms, limit, {"temperature": 0}),
        }
        try:
            data: Any = self._client.post("/chat/completions", body=body, cast_to=object)
        except openai.APIStatusError as error:
            return self._learnt(terms, error) or self._refused(error)
        except (openai.APIError, ValueError) as error:  # ValueError: the body is no JSON
            return Failed(reason="transport", detail=type(error).__name__)
        return self._answer(data)

    def _learnt(self, terms: Terms, error: Any) -> Terms | None:
        """What to ask under from now on, if the refusal was of the terms."""
        if error.status_code not in (400, 422):
            return None
        with self._learning:
            if terms != self._terms:
                return self._terms  # another thread has learnt meanwhile
            eased = ease(terms, str(error.message))
            if eased is not None:
                log.info("%s: %s asks for %s", self.card.name, self._endpoint.model, eased)
                self._terms = eased
            return eased

    def _refused(self, error: Any) -> Failed:
        status = error.status_code
        said = self._clean(error.message)[:200]
        if status in (401, 403, 404):
            reason = "denied"
        elif status in (408, 409, 429) or status >= 500:
            reason = "transport"
        else:
            reason = "rejected"
        return Failed(reason=reason, detail=f"HTTP {status} {said}")

    def _answer(self, data: Any) -> Scored | Failed:
        try:
            choice = data["choices"][0]
            message = choice["message"]
            text, refusal = message.get("content"), message.get("refusal")
        except (TypeError, KeyError, IndexError, AttributeError):
            return Failed(reason="transport", detail="the answer is no chat completion")
        if refusal:
            return Failed(reason="refusal", detail=self._clean(refusal)[:200])
        if choice.get("finish_reason") == "length":
            return Failed(reason="truncated", detail=self._clean(text)[:200])
        if choice.get("finish_reason") == "content_filter":
            return Failed(reason="filtered")
        return self._read(self._clean(text) if isinstance(text, str) else "")

    def _clean(self, said: object) -> str:
        """The server's words without the key, which it may quote in any of them."""
        return str(said) if self._key == "none" else str(said).replace(self._key, "***")


def unreadable(reply: str, why: str) -> Failed:
    """A reply of another form than asked for."""
    return Failed(reason="parse", detail=f"{why}: {reply[:160]!r}")
