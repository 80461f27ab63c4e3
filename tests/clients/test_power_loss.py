"""A broker of a cluster whose machine loses power, and with it all that was only in memory."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.clusters import ClusterProcesses
from tests.power_loss import lose_power

from .driver_confluent import ConfluentDriver
from .drivers import Outgoing
from .test_reassignments import place, placed
from .waiting import wait_until

COUNT = 50
IN_SYNC_S = 60.0


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
    """Though it is the preferred leader, and its session did not expire; nor if its first start failed.

    It is the controller too, so that it elects leaders itself.
    """
    cluster = ClusterProcesses(tmp_path)
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
            assert lose_power(one.data_dir) > COUNT
            if not starts_at_once:
                with socket.create_server(one.address), pytest.raises(AssertionError, match="cannot listen"):
                    one.start()
            one.start()
            wait_until(lambda: placed(cluster, "orders")[0][0] in others, "another one was elected")
        wait_until(lambda: placed(cluster, "orders")[0][2] == [1, 2, 3], "all are in sync again", IN_SYNC_S)
        found = ConfluentDriver(cluster.bootstrap).consume_from_start("orders", COUNT)
        assert [message.value for message in found] == sent
    finally:
        cluster.finish()
