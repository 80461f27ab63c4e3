"""A broker of a cluster whose machine loses power, and with it all that was only in memory."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.log.checkpoint import FILE_BYTES, FILE_NAME, CheckpointFile
from penstock.log.disk import OsDisk
from tests.brokers import BrokerProcess
from tests.clusters import ClusterProcesses

from .driver_confluent import ConfluentDriver
from .driving import Outgoing
from .test_reassignments import place, placed
from .waiting import wait_until

COUNT = 50
SESSION_S = 60.0
"""So long that nobody misses the broker before it is back."""


def lose_power(broker: BrokerProcess) -> None:
    """Leave its folder as a machine does that stops before it has written anything back: with empty files."""
    disk = OsDisk(broker.data_dir)
    for folder in (broker.data_dir / "logs").glob("*/*"):
        where = str(folder.relative_to(broker.data_dir))
        assert CheckpointFile(disk, where).load("another boot") is None, "some of it was synced, and cannot be gone"
        for path in folder.iterdir():
            os.truncate(path, 0)
        os.truncate(folder / FILE_NAME, FILE_BYTES)
    noted = broker.data_dir / "last-run"
    before = json.loads(noted.read_text())
    noted.write_text(json.dumps({**before, "boot_id": "another boot"}).ljust(256))


@contextmanager
def paused(*brokers: BrokerProcess) -> Iterator[None]:
    for broker in brokers:
        os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for broker in brokers:
            os.kill(broker.pid, signal.SIGCONT)


@pytest.mark.parametrize("starts_at_once", [True, False])
def test_it_is_not_elected_for_what_others_have_and_it_may_lack(tmp_path: Path, starts_at_once: bool) -> None:
    """Though it is the preferred leader, and nobody saw that it was away; nor if its first start came to nothing.

    It is the controller too, so that it is itself who elects.
    """
    cluster = ClusterProcesses(tmp_path, session_s=SESSION_S)
    try:
        confluent = ConfluentDriver(cluster.bootstrap)
        (one,) = (broker for broker in cluster.brokers.values() if broker.metric("penstock_is_controller"))
        (node,) = (node for node, broker in cluster.brokers.items() if broker is one)
        others = {other: broker for other, broker in cluster.brokers.items() if other != node}
        place(confluent, "orders", [node, *others])
        sent = [b"%d" % number for number in range(COUNT)]
        confluent.produce("orders", [Outgoing(value=value) for value in sent])
        with paused(*others.values()):
            one.kill()
            lose_power(one)
            if not starts_at_once:
                with socket.create_server(one.address), pytest.raises(AssertionError, match="cannot listen"):
                    one.start()
            one.start()
            wait_until(lambda: placed(cluster, "orders")[0][0] in others, "another one was elected")
        wait_until(lambda: placed(cluster, "orders")[0][2] == [1, 2, 3], "all are in sync again", SESSION_S)
        found = ConfluentDriver(cluster.bootstrap).consume_from_start("orders", COUNT)
        assert [message.value for message in found] == sent
    finally:
        cluster.finish()
