"""`penstock cluster status` while a broker that is registered does not answer, on a real etcd."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.waiting import wait_until
from tests.clusters import ClusterProcesses

from .cli_runner import Cli, table
from .test_cluster import create


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    made = ClusterProcesses(tmp_path)
    yield made
    made.kill()


def healthy(cluster: ClusterProcesses) -> tuple[Cli, dict[str, Any]]:
    create(cluster, "orders", 6, 3)
    cli = Cli(cluster.bootstrap)
    wait_until(lambda: cli("cluster", "status", "--check").returncode == 0, "it is healthy", 60)
    (found,) = cli.json("cluster", "status")
    assert found["healthy"]
    assert found["unreachable"] == []
    return cli, found


@pytest.mark.parametrize("is_controller", [True, False])
def test_a_broker_that_was_just_killed_is_unreachable(cluster: ClusterProcesses, is_controller: bool) -> None:
    _, before = healthy(cluster)
    controller = before["controller"]
    node_id = controller if is_controller else next(each for each in cluster.brokers if each != controller)
    address = cluster.brokers[node_id].kafka
    cluster.brokers[node_id].kill()
    cli = Cli(cluster.bootstrap)
    done = cli("cluster", "status", "--check")
    assert done.returncode == 1
    text = done.stdout.decode()
    assert text.splitlines()[0].endswith(": unhealthy")
    assert [str(node_id), address, "-", "unreachable"] in table(text)
    role = " (controller)" if is_controller else ""
    assert f"broker {node_id}{role} does not answer: cannot reach {address}: connection refused" in text
    (found,) = cli.json("cluster", "status")
    assert not found["healthy"]
    assert found["unreachable"] == [{"id": node_id, "reason": f"cannot reach {address}: connection refused"}]
    assert {each["id"]: each["state"] for each in found["brokers"]}[node_id] == "unreachable"
    led = [f"orders-{each}" for each in range(6)]
    assert any(name in led for name in found["partitions"]["leader_unreachable"])
    rows = {row["id"]: row for row in cli.json("cluster", "brokers")}
    assert (rows[node_id]["state"], rows[node_id]["size_bytes"]) == ("unreachable", None)


def test_a_controller_that_is_stopped_is_unreachable(cluster: ClusterProcesses) -> None:
    """Its machine accepts connections, and does not answer."""
    _, before = healthy(cluster)
    stopped = cluster.brokers[before["controller"]]
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        others = [each.kafka for each in cluster.brokers.values() if each is not stopped]
        (found,) = Cli(",".join(others)).json("cluster", "status")
        assert not found["healthy"]
        (silent,) = found["unreachable"]
        assert silent == {
            "id": before["controller"],
            "reason": f"cannot reach {stopped.kafka}: no answer within 5 s",
        }
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
