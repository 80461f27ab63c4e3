"""Addresses and networks in settings."""

import pytest

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.networks import Networks
from penstock.foundation.proxies import Proxies


@pytest.mark.parametrize(
    ("host", "is_in"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("192.0.2.7", True),
        ("192.0.2.8", False),
        ("::ffff:192.0.2.8", False),
        ("fd00::7", True),
        ("fd01::7", False),
        ("", False),
        ("localhost", False),
        ("10.1.2.3, 10.1.2.4", False),
    ],
)
def test_an_address_is_in_a_network_or_not(host: str, is_in: bool) -> None:
    networks = ["10.0.0.0/8", "192.0.2.7", "fd00::/16"]
    assert Networks("x", networks).has(host) is is_in
    assert Proxies(networks).has(host) is is_in


def test_an_empty_list_has_no_address() -> None:
    assert not Networks("x", [])
    assert Networks("x", ["10.0.0.1"])
    assert not Networks("x", []).has("10.0.0.1")


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10.0.0.0/33", "example.org", "10.0.0.0-10.0.0.9"])
def test_wrong_networks_are_named(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"http\.health\.allow has .* expected addresses and networks") as raised:
        Networks("http.health.allow", [text])
    assert repr(text) in str(raised.value)
