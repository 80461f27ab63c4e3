"""Tokens for OAUTHBEARER logins: from an issuer with the grant "client credentials" of OAuth 2, or from a file."""

import asyncio
import json
import time
from base64 import b64encode
from typing import Final
from urllib.parse import quote_plus, urlencode

from penstock.client.errors import ConnectionFailed, LoginRefused
from penstock.foundation.oauth_settings import TokenSource
from penstock.foundation.small_download import DownloadFailed, download

BYTES_MAX: Final = 1 << 20
SHARE_USED: Final = 0.8
"""A token is used for this share of its lifetime, as in Kafka's clients."""
SOURCES_MAX: Final = 64
_TOKENS: Final[dict[TokenSource, tuple[float, str]]] = {}
"""Tokens of this process with the time until which they are used."""


async def token_of(source: TokenSource) -> str:
    """Returns a token of the source. Raises LoginRefused if there is none, ConnectionFailed if the issuer is down."""
    until_s, token = _TOKENS.get(source, (0.0, ""))
    if time.monotonic() < until_s:
        return token
    try:
        if source.url.startswith("file:"):
            content = await asyncio.to_thread(download, source.url, bytes_max=BYTES_MAX)
            return content.decode("ascii").strip()
        token, lifetime_s = _parse(source, await asyncio.to_thread(_ask, source))
    except DownloadFailed as error:
        raise ConnectionFailed(f"there is no token for the login: {error}") from error
    except UnicodeDecodeError as error:
        raise LoginRefused(f"{source.url} does not contain a token") from error
    if len(_TOKENS) >= SOURCES_MAX:
        del _TOKENS[next(iter(_TOKENS))]
    _TOKENS[source] = time.monotonic() + lifetime_s * SHARE_USED, token
    return token


def forget(source: TokenSource) -> None:
    """Forgets the token of a source, because a broker has refused it."""
    _TOKENS.pop(source, None)


def _ask(source: TokenSource) -> bytes:
    form = {"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {})
    # RFC 6749, section 2.3.1: both are encoded as in a form.
    credentials = f"{quote_plus(source.client_id)}:{quote_plus(source.client_secret)}"
    return download(
        source.url,
        authorities=source.authorities,
        form=urlencode(form).encode(),
        authorization="Basic " + b64encode(credentials.encode()).decode(),
        bytes_max=BYTES_MAX,
    )


def _parse(source: TokenSource, content: bytes) -> tuple[str, float]:
    """Returns the token of an issuer's answer, and its lifetime in seconds."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise LoginRefused(f"{source.url} did not answer with JSON") from error
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if not (isinstance(token, str) and token and token.isascii() and token.isprintable()):
        raise LoginRefused(f"{source.url} did not answer with an access_token")
    lifetime = answer.get("expires_in", 0)
    return token, float(lifetime) if isinstance(lifetime, int | float) else 0.0
