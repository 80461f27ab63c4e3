"""URLs of schema registries: parses them, and finds those of Penstock's brokers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from penstock.client.cluster import ClientSettings
from penstock.client.http import Endpoint
from penstock.client.http_addresses import ADVERTISED_HTTP, find_http_addresses
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError

REGISTRY_PATH: Final = "/registry"
"""Where Penstock's brokers serve the registry."""
_PATH_CHARS: Final = "/%:@!$&'()*+,;=~-._"


class NoRegistryUrl(PenstockError):
    """No broker advertises an HTTP address, so the registry cannot be found."""

    code = ErrorCode.BROKER_NOT_AVAILABLE


@dataclass(frozen=True, slots=True)
class RegistryUrl:
    """The URL of a schema registry. Shown without user and password.

    >>> url = RegistryUrl.parse("https://ada:secret@schemas.example.org/registry/")
    >>> str(url), url.user
    ('https://schemas.example.org/registry', 'ada')
    """

    endpoint: Endpoint
    path: str = ""
    """The path before those of the REST API, without a slash at its end."""
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str) -> "RegistryUrl":
        """Parses a URL, or `HOST:PORT`. Raises ValueError with the reason."""
        try:
            split = urlsplit(text if "://" in text else f"http://{text}")
            host, port = split.hostname, split.port
        except ValueError:
            host, port = None, None
        if not host or split.scheme not in ("http", "https") or split.query or split.fragment:
            # The text may have a password: show only what follows it.
            raise ValueError(
                f"{text.rpartition('@')[2]!r} is not the URL of a schema registry; give http://HOST:PORT/registry "
                "for a Penstock broker, http://HOST:8081 for other registries"
            )
        is_tls = split.scheme == "https"
        return cls(
            endpoint=Endpoint(host, port or (443 if is_tls else 80), is_tls),
            path=quote(split.path.rstrip("/"), safe=_PATH_CHARS),
            user=unquote(split.username or ""),
            password=unquote(split.password or ""),
        )

    def __str__(self) -> str:
        return f"{self.endpoint}{self.path}"


def parse_urls(text: str) -> tuple[RegistryUrl, ...]:
    """Parses a comma-separated list of URLs of one registry. Raises ValueError."""
    found = tuple(dict.fromkeys(RegistryUrl.parse(part.strip()) for part in text.split(",") if part.strip()))
    if not found:
        raise ValueError("the list of registry URLs is empty; give http://HOST:PORT/registry")
    return found


async def find_registry(bootstrap: str, settings: ClientSettings | None = None) -> list[RegistryUrl]:
    """Returns the URLs of the registry that Penstock's brokers serve: any of them answers every request. Raises
    NoRegistryUrl or ConnectionFailed."""
    return urls_of(await find_http_addresses(bootstrap, settings), bootstrap)


def urls_of(advertised: Sequence[str], bootstrap: str) -> list[RegistryUrl]:
    """Returns the registry's URLs at advertised HTTP addresses. Raises NoRegistryUrl if one is invalid or there is
    none. `bootstrap` is used only in the error message."""
    try:
        endpoints = dict.fromkeys(Endpoint.parse(text) for text in advertised)
    except ValueError as error:
        raise NoRegistryUrl(f"the brokers at {bootstrap} have an invalid {ADVERTISED_HTTP}: {error}") from error
    if not endpoints:
        raise NoRegistryUrl(
            f"the brokers at {bootstrap} do not advertise an HTTP address ({ADVERTISED_HTTP}); are they Penstock "
            "brokers of this version? Give the registry's URL, http://HOST:PORT"
        )
    return [RegistryUrl(each, REGISTRY_PATH) for each in endpoints]
