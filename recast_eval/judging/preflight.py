"""One look at an endpoint before anything is paid."""

import os

from recast_eval.chat import serves
from recast_eval.errors import ConfigError
from recast_eval.judging.secrets import is_loopback
from recast_eval.judging.transport import OpenAITransport, Transport, TransportError


class Unreachable(Exception):  # noqa: N818 - a finding, not a fault of the caller's
    """Nobody answers there now; the same command may succeed later."""


async def look_at(transport: Transport, model: str) -> list[str]:
    """List the endpoint's models and compare them with the one wanted.

    Returns:
        The models listed; empty if the endpoint lists none.

    Raises:
        ConfigError: The key is refused, the model is not there, or the URL lacks ``/v1``.
        Unreachable: No answer, or a server in trouble.
    """
    url = transport.base_url
    try:
        found = await transport.models()
    except TransportError as error:
        if error.status in (401, 403):
            raise ConfigError([f"{url}/models: {error}; {_key_hint(transport)}"]) from None
        if error.status in (404, 405) or error.trouble == "rejected":
            await _try_v1(transport, model)
            return []
        raise Unreachable(f"{url}/models: {error}{_proxy_hint(url, error)}") from None
    if found and not serves(found, model):
        shown = ", ".join(sorted(found)[:12])
        raise ConfigError([f"{url} has no model {model!r}; it lists {shown}"])
    return found


async def _try_v1(transport: Transport, model: str) -> None:
    """The usual slip is a base URL without ``/v1``: see whether that is it."""
    url = transport.base_url
    if url.endswith("/v1") or not isinstance(transport, OpenAITransport):
        return
    other = OpenAITransport(f"{url}/v1", transport.client.api_key)
    try:
        await other.models()
    except TransportError:
        return  # some servers list no models at all; the first question will tell
    finally:
        await other.aclose()
    raise ConfigError(
        [f"{url}/models is not there, but {url}/v1/models is: use --base-url {url}/v1"]
    )


def _key_hint(transport: Transport) -> str:
    if not isinstance(transport, OpenAITransport) or transport.keyed:
        return "check the API key's variable"
    return (
        "no key was sent: set the variable that the card names; a juror elsewhere needs an "
        "`api_key_env` of its own, and an audit --base-url"
    )


def _proxy_hint(url: str, error: TransportError) -> str:
    proxies = [name for name in ("http_proxy", "https_proxy", "all_proxy") if _set(name)]
    if error.status != 502 or not proxies or is_loopback(url):
        return ""
    return f" ({', '.join(proxies)} is set: add the host to no_proxy if it is a near one)"


def _set(name: str) -> bool:
    return bool(os.environ.get(name) or os.environ.get(name.upper()))
