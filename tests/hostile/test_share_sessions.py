"""A share session with thousands of partitions: opened, waiting, woken, acknowledged and dropped."""

from collections.abc import Callable

import pytest

from tests.brokers import BrokerProcess
from tests.clients.raw import PRODUCE_VERSION, batch_of, produce_request
from tests.clients.share_raw import ShareMember, configure

from .conftest import print_worst
from .full_broker import WIDE, FullBroker, ask_all
from .probe import Probe

COUNTS = [pytest.param(500, id="500"), pytest.param(4000, id="4000", marks=pytest.mark.slow)]
"""Each partition has two logs, and each log has open files: a process may have 20,000 of them."""
WAIT_S = 240.0


@pytest.mark.parametrize("count", COUNTS)
def test_a_share_session_with_many_partitions_does_not_hold_the_loop(
    count: int, own_target: Callable[..., BrokerProcess]
) -> None:
    target = own_target()
    probe = Probe(target)
    broker = FullBroker(target, count)
    broker.add_partitions()
    configure(target, "readers", {"share.auto.offset.reset": "earliest"})
    member = ShareMember(target, "readers", WIDE)
    member.raw.socket.settimeout(WAIT_S)
    with probe.watch(f"share session of {count:,}: joined"):
        member.join(count)
    with probe.watch(f"share session of {count:,}: opened"):
        assert member.fetch(partitions=range(count)) == {}
    with broker.connect() as raw, probe.watch(f"share session of {count:,}: waits and is woken"):
        for number in (0, count // 2, count - 1):
            member.raw.send(member.request(max_wait_ms=120_000), member.version)
            assert raw.produce(WIDE, batch_of([b"x"]), partition=number).error_code == 0
            answer = member.raw.receive()
            member.note(answer.error_code)
            (found,) = [part.partition_index for topic in answer.responses for part in topic.partitions]
            assert found == number, (found, number, answer)
    with broker.connect() as raw, probe.watch(f"share session of {count:,}: all delivered"):
        requests = [(produce_request(WIDE, batch_of([b"y"]), number), PRODUCE_VERSION) for number in range(count)]
        ask_all(raw, requests)
        got: dict[int, int] = {}
        while len(got) < count:
            for number, found in member.fetch(max_wait_ms=60_000, max_records=count).items():
                got[number] = found.acquired[-1][0]
    with probe.watch(f"share session of {count:,}: all acknowledged"):
        half = range(0, count, 2)
        member.ask({number: [(got[number], got[number], [1])] for number in half}, max_records=0, max_wait_ms=0)
    other = ShareMember(target, "readers", WIDE, "m2")
    other.raw.socket.settimeout(WAIT_S)
    with probe.watch(f"share session of {count:,}: connection lost"):
        other.ask(partitions=range(count), max_records=1, max_wait_ms=0)
        member.close_connection()
        found_again = other.fetch(max_wait_ms=120_000)
        assert found_again
    other.close_connection()
    print_worst(probe)
