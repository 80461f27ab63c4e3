from random import Random

from tests.simulation.clock import FakeClock
from tests.simulation.network import Conditions, FakeNetwork


def _all(network: FakeNetwork, clock: FakeClock) -> list[object]:
    clock.advance(1000)
    return [message for _, _, message in network.arrivals()]


def test_a_calm_network_delivers_every_message_once() -> None:
    clock = FakeClock()
    network = FakeNetwork(Random(1), clock)
    for number in range(100):
        network.send("a", "b", number)
    assert sorted(_all(network, clock)) == list(range(100))
    assert network.next_at_ms() is None


def test_messages_overtake_each_other() -> None:
    clock = FakeClock()
    network = FakeNetwork(Random(1), clock, Conditions(delay_ms_max=50))
    for number in range(100):
        network.send("a", "b", number)
    assert _all(network, clock) != list(range(100))


def test_a_bad_network_loses_and_repeats() -> None:
    clock = FakeClock()
    network = FakeNetwork(Random(1), clock, Conditions(loss=0.3, repeat=0.3))
    for number in range(1000):
        network.send("a", "b", number)
    got = _all(network, clock)
    assert 500 < len(set(got)) < 900
    assert len(got) > len(set(got))


def test_a_cut_is_one_way_and_heals() -> None:
    clock = FakeClock()
    network = FakeNetwork(Random(1), clock)
    network.cut("a", "b")
    network.send("a", "b", "lost")
    network.send("b", "a", "there")
    assert _all(network, clock) == ["there"]
    network.heal()
    network.send("a", "b", "now")
    assert _all(network, clock) == ["now"]
