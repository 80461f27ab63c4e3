"""A fourth broker joins while producers and consumers run: it gets its share, and no client is disturbed."""

import os
import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.clients.waiting import wait_until

from .checker import Outcome, check, count
from .cluster_lab import Lab, lab
from .cluster_load import GROUP, History, Member, Reader, Worker, Writer

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(2**32))))
PARTITIONS = 24
REPLICAS = 3
PATIENCE_S = 180.0


def replicas(cluster: Lab) -> set[tuple[str, int]]:
    """Where replicas are: partitions and brokers."""
    found = cluster.partitions(cluster.admin())
    return {(name, node) for name, state in found.items() for node in state.replicas if name.startswith("growing-")}


def rebalance(cluster: Lab) -> str:
    command = [str(Path(sys.executable).with_name("penstock")), "cluster", "rebalance", "--execute"]
    done = subprocess.run(
        [*command, "--bootstrap", cluster.bootstrap], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["zookeeper", "etcd"])
def test_a_fourth_broker_takes_its_share_and_no_client_sees_an_error(kind: str) -> None:
    print(f"SEED={SEED}")  # noqa: T201
    rng = random.Random(SEED)
    with lab(kind) as cluster, closing(History(cluster.folder / "history.jsonl")) as history:
        cluster.create("growing", PARTITIONS, replicas=REPLICAS)
        places = [("growing", partition) for partition in range(PARTITIONS)]
        writers = [
            Writer(f"w{number}", history, cluster.bootstrap, places, random.Random(rng.random()))
            for number in range(2)
        ]
        readers: list[Worker] = [
            Reader("r0", history, cluster.bootstrap, places),
            Member("g0", history, cluster.bootstrap, ["growing"], "classic"),
        ]
        for worker in (*writers, *readers):
            worker.start()
        wait_until(lambda: len(history.due) > 2000, "there is something to move", PATIENCE_S)
        before = replicas(cluster)
        broker = cluster.add_broker(4)
        broker.start()
        broker.wait_ready()
        print(rebalance(cluster))  # noqa: T201
        wait_until(lambda: len({node for _, node in replicas(cluster)}) == 4, "the new one has replicas", PATIENCE_S)
        wait_until(lambda: len(replicas(cluster)) == REPLICAS * PARTITIONS, "the old ones are gone", PATIENCE_S)
        cluster.wait_whole()
        after = replicas(cluster)
        beyond = len(history.due)
        wait_until(lambda: len(history.due) > beyond + 1000, "messages flow on", PATIENCE_S)
        for writer in writers:
            writer.stop()
            writer.join(PATIENCE_S)
        wait_until(lambda: not history.missing(("r0", GROUP)), "all is read", PATIENCE_S)
        for reader in readers:
            reader.stop()
            reader.join(60)
        moved = len(after - before)
        print(f"{moved} of {len(before)} replicas moved on {kind}, while {len(history.due)} messages came")  # noqa: T201
        refused = [op for op in history.ops if op.sent and op.outcome is not Outcome.OK]
        assert refused == []
        assert [line for worker in (*writers, *readers) for line in worker.trouble] == []
        anomalies = check(history.ops)
        assert not anomalies, f"{count(anomalies)}: {anomalies[:5]}"
        assert len(before) / 5 <= moved <= len(before) / 3
        assert {node for _, node in after - before} == {4}
        cluster.stop()
        cluster.check_logs()
