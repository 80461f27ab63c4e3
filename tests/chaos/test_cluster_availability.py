"""How long partitions are without a leader: after a broker was killed, and during a controlled shutdown.

The only tests that assert how long something takes: that it is soon is what they are about.
"""

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.clients.waiting import wait_until

from .cluster_broker import ClusterBroker
from .cluster_lab import Lab, lab, noting
from .cluster_probe import Probe

TRIALS = int(os.environ.get("TRIALS", "20"))
SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(2**32))))
SESSION_S = 4.0
PARTITIONS = 6
MANY = 1000
AFTER_A_KILL_S = SESSION_S + 1.0
AFTER_A_STOP_S = 0.5
MANY_AFTER_A_KILL_S = SESSION_S + 3.0
MANY_KIB = 50 << 10
EACH_STORE = pytest.mark.parametrize("kind", ["zookeeper", "etcd"])


@contextmanager
def probed(kind: str) -> Iterator[tuple[Lab, Probe]]:
    with lab(kind, session_s=SESSION_S, settings={"leader.imbalance.check.interval.seconds": 2}) as cluster:
        cluster.create("probe", PARTITIONS)
        probe = Probe(cluster.bootstrap, "probe", PARTITIONS)
        probe.start()
        yield cluster, probe
        probe.stop()
        assert probe.failures == []
        cluster.stop()
        cluster.check_logs()


def led_by(cluster: Lab, topic: str) -> dict[int, list[int]]:
    """The partitions of a topic that each broker leads."""
    found: dict[int, list[int]] = {}
    for name, state in cluster.partitions(cluster.admin()).items():
        if name.rpartition("-")[0] == topic:
            found.setdefault(state.leader, []).append(state.id)
    return found


def trials(
    cluster: Lab, probe: Probe, rng: random.Random, trial: Callable[[ClusterBroker, list[int]], float]
) -> list[float]:
    """The outcome of each trial on a broker that leads something, while all is well."""
    found = []
    note = noting(cluster.folder / "trials.log")
    for _ in range(TRIALS):
        cluster.wait_whole()
        now_s = time.monotonic()
        probe.resumed_after_s(range(PARTITIONS), now_s)
        led = led_by(cluster, "probe")
        node = rng.choice(sorted(led))
        broker = cluster.brokers[node]
        note(f"{broker.name}{' (the controller)' if cluster.controller() == node else ''}")
        found.append(trial(broker, led[node]))
        note(f"{found[-1]:.3f} s")
        probe.forget()
        broker.start()
        broker.wait_ready()
    return found


def report(what: str, kind: str, found: list[float]) -> None:
    line = f"median {statistics.median(found):.3f} s, worst {max(found):.3f} s of {len(found)}"
    busy = os.getloadavg()[1] / (os.cpu_count() or 1)
    print(f"SEED={SEED} {what} on {kind}: {line}; {busy:.1f} processes a core")  # noqa: T201
    print([round(each, 3) for each in found])  # noqa: T201


@pytest.mark.slow
@pytest.mark.timeout(1800)
@EACH_STORE
def test_partitions_of_a_killed_broker_are_writable_within_its_lease_and_a_second(kind: str) -> None:
    with probed(kind) as (cluster, probe):

        def trial(broker: ClusterBroker, led: list[int]) -> float:
            since_s = time.monotonic()
            broker.kill()
            return probe.resumed_after_s(led, since_s)

        found = trials(cluster, probe, random.Random(SEED), trial)
        report("resumed after a kill", kind, found)
        assert max(found) <= AFTER_A_KILL_S


@pytest.mark.slow
@pytest.mark.timeout(1800)
@EACH_STORE
def test_partitions_of_a_stopped_broker_are_writable_within_half_a_second(kind: str) -> None:
    with probed(kind) as (cluster, probe):

        def trial(broker: ClusterBroker, led: list[int]) -> float:
            since_s = time.monotonic()
            broker.signal_stop()
            assert broker.wait_stopped() == 0
            probe.resumed_after_s(led, time.monotonic())
            return probe.longest_silence_s(led, since_s)

        found = trials(cluster, probe, random.Random(SEED), trial)
        report("silent during a stop", kind, found)
        assert max(found) <= AFTER_A_STOP_S


@pytest.mark.slow
@pytest.mark.timeout(900)
@EACH_STORE
def test_a_thousand_partitions_have_leaders_soon_after_a_kill_and_take_little_memory(kind: str) -> None:
    with lab(kind, session_s=SESSION_S) as cluster:
        before = {node: broker.rss_anon_kib() for node, broker in cluster.brokers.items()}
        cluster.create("many", MANY)
        cluster.wait_whole()
        grown = {node: broker.rss_anon_kib() - before[node] for node, broker in cluster.brokers.items()}
        admin = cluster.admin()
        broker = cluster.brokers[1]
        since_s = time.monotonic()
        broker.kill()

        def is_led() -> bool:
            # A short patience: the broker that is asked may be the one that is gone.
            leaders = [state.leader for state in cluster.partitions(admin, 0.5).values()]
            return len(leaders) >= MANY and all(leader not in (-1, broker.node_id) for leader in leaders)

        wait_until(is_led, "all partitions are led", 120, 0.05)
        elected_s = time.monotonic() - since_s
        print(f"{MANY} partitions on {kind}: led after {elected_s:.3f} s; KiB more in brokers: {grown}")  # noqa: T201
        assert elected_s <= MANY_AFTER_A_KILL_S
        assert max(grown.values()) <= MANY_KIB
        broker.start()
        broker.wait_ready()
        cluster.wait_whole()
        cluster.stop()
        cluster.check_logs()
