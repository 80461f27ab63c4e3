import pytest

from penstock.client.address import Address, parse_bootstrap


def test_a_bootstrap_list_is_read_in_order_and_without_repetition() -> None:
    assert parse_bootstrap("a:1, b:2,a:1,") == (Address("a", 1), Address("b", 2))


def test_an_ipv6_address_stands_in_brackets_both_ways() -> None:
    (address,) = parse_bootstrap("[::1]:9092")
    assert address == ("::1", 9092)
    assert str(address) == "[::1]:9092"


@pytest.mark.parametrize("text", ["", ",", "localhost", "localhost:", ":9092", "a:0", "a:65536", "a:http"])
def test_an_invalid_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:9092"):
        parse_bootstrap(text)
