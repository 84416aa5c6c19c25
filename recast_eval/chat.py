"""How a chat endpoint wants to be asked: servers differ in what bounds the output and in sampling.

Newer models behind OpenAI's protocol refuse ``max_tokens``, or any temperature but their own; older
servers know no ``max_completion_tokens``. The first refusal says which, and is remembered.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal
from urllib.parse import urlsplit

from recast_eval.errors import ConfigError

Budget = Literal["max_tokens", "max_completion_tokens"]
"""Name of the parameter that bounds the output."""
SAMPLING: Final = ("temperature", "top_p", "seed")
_TRIED: Final = "tried-"


@dataclass(frozen=True, slots=True)
class Terms:
    """What an endpoint takes, as far as it is known."""

    budget: Budget
    omitted: frozenset[str] = frozenset()
    """Sampling parameters that it refused, and ``tried-NAME`` of a budget that it refused."""

    @property
    def unsampled(self) -> tuple[str, ...]:
        """Sampling parameters that are not sent."""
        return tuple(n for n in SAMPLING if n in self.omitted)


def key_from(variable: str) -> str | None:
    """The key that an environment variable holds, if any.

    Raises:
        ConfigError: No request can carry it. The message does not show it.
    """
    key = os.environ.get(variable)
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigError(
            [
                f"{variable}: the key holds a space, a line break or a character outside ASCII; "
                "no request can carry that: copy it again"
            ]
        )
    return key or None


def serves(names: Iterable[str], model: str) -> bool:
    """Whether a list of models names one; some servers list ``models/NAME`` and take ``NAME``."""
    short = model.removeprefix("models/")
    return any(name.removeprefix("models/") == short for name in names)


def first_terms(base_url: str) -> Terms:
    """Where to begin: OpenAI's own servers have moved on from ``max_tokens``."""
    host = urlsplit(base_url).hostname or ""
    own = host == "openai.com" or host.endswith(".openai.com")
    return Terms("max_completion_tokens" if own else "max_tokens")


def ease(terms: Terms, message: str) -> Terms | None:
    """The next terms after a rejection, or None if its message names nothing that they can change.

    Args:
        terms: What was rejected.
        message: The endpoint's words.
    """
    said = message.lower()
    if "max_completion_tokens" in said or "max_tokens" in said:
        names: tuple[Budget, Budget] = ("max_tokens", "max_completion_tokens")
        other = names[terms.budget == names[0]]
        if f"{_TRIED}{other}" not in terms.omitted:
            return Terms(other, terms.omitted | {f"{_TRIED}{terms.budget}"})
    for name in SAMPLING:
        if re.search(rf"\b{name}\b", said) and name not in terms.omitted:
            return replace(terms, omitted=terms.omitted | {name})
    return None


def parameters(
    terms: Terms, limit: int, sampling: Mapping[str, float | int | None]
) -> dict[str, float | int]:
    """The part of a request that bounds and samples; what is None or refused is left out.

    Args:
        terms: What the endpoint takes.
        limit: Tokens of output at most.
        sampling: By name, of ``SAMPLING``.
    """
    body: dict[str, float | int] = {terms.budget: limit}
    for name in SAMPLING:
        value = sampling.get(name)
        if value is not None and name not in terms.omitted:
            body[name] = value
    return body
