"""Keep keys out of whatever is written, logged or raised."""

import re
from typing import Any, Final
from urllib.parse import urlsplit

from recast_eval.errors import ConfigError

_LOOKS_LIKE_A_KEY: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|AIza)[-_][A-Za-z0-9_-]{8,}|(?i:bearer)\s+[^\s\"']{6,}"
)
_USER_IN_URL: Final = re.compile(r"(?<=://)[^/\s@]+@")
_A_KEY_AT_LEAST: Final = 8
"""A shorter "key" (``none``, ``EMPTY``) is a word that a reply may well use."""


class Scrubber:
    """Replaces a known key, and whatever looks like one, by three stars."""

    def __init__(self, *keys: str | None) -> None:
        self._keys = sorted((k for k in keys if k and len(k) > 3), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return the text without keys."""
        for key in self._keys:
            text = text.replace(key, "***")
        return _USER_IN_URL.sub("***@", _LOOKS_LIKE_A_KEY.sub("***", text))

    def within(self, data: Any) -> Any:
        """A JSON value without the known keys; what merely looks like one is a reply's own word."""
        if isinstance(data, dict):
            return {self.within(name): self.within(value) for name, value in data.items()}
        if isinstance(data, list):
            return [self.within(value) for value in data]
        if isinstance(data, str):
            for key in self._keys:
                if len(key) >= _A_KEY_AT_LEAST:
                    data = data.replace(key, "***")
        return data


def checked_url(url: str) -> str:
    """A base URL in one spelling, refused if it carries a secret.

    Raises:
        ConfigError: It is no http(s) URL, or holds a user, password or query.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError([f"base URL: {error}"]) from None
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(["base URL must look like http://127.0.0.1:8000/v1"])
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(
            ["base URL holds a user, password or query; put the key in its environment variable"]
        )
    name = f"[{host}]" if ":" in host else host
    place = f"{name}:{port}" if port else name
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}"


def origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port: what may share a key."""
    parts = urlsplit(url)
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname or "", parts.port or usual


def is_openai(url: str) -> bool:
    """Whether it is the server that ``OPENAI_API_KEY`` is named for."""
    return origin(url) == ("https", "api.openai.com", 443)


def is_loopback(url: str) -> bool:
    """Whether a URL points at this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
