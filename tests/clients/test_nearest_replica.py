"""Consumers with a rack id read from the nearest replica (KIP-392)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import ClusterProcesses

from .driver_confluent import ConfluentDriver
from .drivers import Outgoing
from .test_reassignments import place, placed
from .waiting import wait_until

COUNT = 2000
VALUE = bytes(1000)
LEADER, FOLLOWER = 1, 2


@pytest.fixture
def racked(tmp_path: Path) -> Iterator[ClusterProcesses]:
    made = ClusterProcesses(tmp_path, count=2, has_racks=True)
    yield made
    made.finish()


@pytest.mark.parametrize(
    ("options", "reader"),
    [
        pytest.param({"client_rack": "rack-2"}, FOLLOWER, id="in the follower's rack"),
        pytest.param({"client_rack": "rack-1"}, LEADER, id="in the leader's rack"),
        pytest.param({"client_rack": "rack-9"}, LEADER, id="in a rack without replicas"),
        pytest.param({}, LEADER, id="nowhere"),
    ],
)
def test_a_consumer_reads_in_its_rack(racked: ClusterProcesses, options: dict[str, str], reader: int) -> None:
    confluent = ConfluentDriver(racked.bootstrap)
    place(confluent, "orders", [LEADER, FOLLOWER])
    confluent.produce("orders", [Outgoing(value=VALUE) for _ in range(COUNT)])
    wait_until(lambda: placed(racked, "orders")[0][2] == [LEADER, FOLLOWER], "both are in sync")
    before = racked.fetched_bytes()
    found = confluent.consume("orders", 0, COUNT, **options)
    assert [message.offset for message in found] == list(range(COUNT))
    grown = {node: after - before[node] for node, after in racked.fetched_bytes().items()}
    other = LEADER + FOLLOWER - reader
    assert grown[reader] >= COUNT * len(VALUE)
    assert grown[other] < COUNT * len(VALUE) / 10, f"broker {other} has sent most of it, too: {grown}"
