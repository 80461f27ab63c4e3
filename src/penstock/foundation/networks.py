"""Lists of IP addresses and networks in settings. Pure."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from penstock.foundation.errors import InvalidConfig


class Networks:
    """IP addresses and networks, as a setting lists them."""

    def __init__(self, setting: str, networks: Iterable[str]) -> None:
        """Raises InvalidConfig, which names the setting, if a network is not valid.

        >>> Networks("http.metrics.allow", ["10.0.0.0/8"]).has("10.1.2.3")
        True
        """
        self._networks: list[IPv4Network | IPv6Network] = []
        for text in networks:
            try:
                self._networks.append(ip_network(text))
            except ValueError as error:
                raise InvalidConfig(
                    f"{setting} has {text!r}; expected addresses and networks such as 10.0.0.0/8"
                ) from error

    def __bool__(self) -> bool:
        return bool(self._networks)

    def has(self, host: str) -> bool:
        """Whether one of the networks has an address. An IPv4 address can be written as one of IPv6."""
        if not self._networks:
            return False
        try:
            address = ip_address(host)
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)
