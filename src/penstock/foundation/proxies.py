"""Load balancers whose headers about clients (X-Forwarded-For, X-Forwarded-Proto) are believed. Pure."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from penstock.foundation.errors import InvalidConfig

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
        self._networks: list[IPv4Network | IPv6Network] = []
        for text in networks:
            try:
                self._networks.append(ip_network(text))
            except ValueError as error:
                raise InvalidConfig(
                    f"{TRUSTED_PROXIES} has {text!r}; expected addresses and networks such as 10.0.0.0/8"
                ) from error

    def has(self, host: str) -> bool:
        """Returns whether a peer is one of these."""
        if not self._networks:
            return False
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)

    def client_of(self, host: str, forwarded: str) -> str:
        """Returns the address of the client of a request. `host`: the peer. `forwarded`: X-Forwarded-For, to which
        each proxy has added its peer: the last one that is not a proxy of ours is the client."""
        hops = [each.strip() for each in forwarded.split(",")[-_HOPS_MAX:] if each.strip()]
        while hops and self.has(host):
            host = hops.pop()
        return host
