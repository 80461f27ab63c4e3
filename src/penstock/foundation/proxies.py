"""Load balancers whose headers about clients (X-Forwarded-For, X-Forwarded-Proto) are believed. Pure."""

from collections.abc import Iterable
from typing import Final

from penstock.foundation.http import HttpRequest
from penstock.foundation.networks import Networks

TRUSTED_PROXIES: Final = "http.trusted.proxies"
_HOPS_MAX: Final = 32
"""Maximum number of addresses in X-Forwarded-For that are looked at, from the last one."""


class Proxies:
    """The addresses of load balancers."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        """Raises InvalidConfig if a network is not valid.

        >>> Proxies(["10.0.0.0/8"]).client_of("10.0.0.1", "192.0.2.7, 10.0.0.9")
        '192.0.2.7'
        """
        self._networks = Networks(TRUSTED_PROXIES, networks)

    def has(self, host: str) -> bool:
        """Returns whether a peer is one of these."""
        return self._networks.has(host)

    def client_host(self, request: HttpRequest) -> str:
        """Returns the address of the client of a request."""
        return self.client_of(request.host, request.headers.get(b"x-forwarded-for", b"").decode("latin-1"))

    def client_of(self, host: str, forwarded: str) -> str:
        """Returns the address of the client of a request. `host`: the peer. `forwarded`: X-Forwarded-For, to which
        each proxy has added its peer: the last one that is not a proxy of ours is the client."""
        hops = [each.strip() for each in forwarded.split(",")[-_HOPS_MAX:] if each.strip()]
        while hops and self.has(host):
            host = hops.pop()
        return host
