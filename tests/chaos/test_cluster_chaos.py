"""Three brokers, three servers of a store, and a hundred faults: nothing that was acknowledged is lost or doubled.

`FAULTS=20` makes a short run, `SEED=…` one that was seen before: its faults are the same, their moments nearly.
"""

import itertools
import os
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import closing

import pytest

from tests.clients.waiting import wait_until

from .checker import check, count
from .cluster_faults import Faults, Nemesis
from .cluster_lab import Lab, lab, noting
from .cluster_load import GROUP, History, Member, Reader, TransactionWriter, Worker, Writer, key_of
from .operator_mistakes import ODDITIES

FAULTS = int(os.environ.get("FAULTS", "110"))
SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(2**32))))
CALM_EVERY = 8
"""Faults between two moments in which all must be well again."""
PATIENCE_S = 180.0
TOPICS = {
    "disk": {"segment.bytes": str(1 << 20)},
    "synced": {"flush": "group", "segment.bytes": str(256 << 10)},
    "memory": {"storage": "memory"},
}
PROTOCOLS = {"zookeeper": "classic", "etcd": "consumer"}
"""Of groups: one each, so that both are met."""
PARTITIONS = 3
LASTING = ("disk", "synced")
AUDIENCES = ("r0", "r1", GROUP)


def places(*topics: str) -> list[tuple[str, int]]:
    return [(topic, partition) for topic in topics for partition in range(PARTITIONS)]


class Load:
    """All producers and consumers."""

    def __init__(self, cluster: Lab, rng: random.Random, protocol: str) -> None:
        self._servers = cluster.bootstrap
        self.history = History(cluster.folder / "history.jsonl", volatile=["memory"])
        self.writers: list[Worker] = [
            *(Writer(f"w{number}", *self._options(rng, *LASTING)) for number in range(3)),
            Writer("m0", *self._options(rng, "memory")),
            *(TransactionWriter(f"t{number}", *self._options(rng, *LASTING)) for number in range(2)),
        ]
        lasting = places(*LASTING)
        self.readers: list[Worker] = [
            Reader("r0", self.history, self._servers, lasting),
            Reader("r1", self.history, self._servers, lasting),
            Reader("rm", self.history, self._servers, places("memory"), is_volatile=True),
            *(Member(f"g{number}", self.history, self._servers, LASTING, protocol) for number in range(2)),
        ]
        for worker in (*self.writers, *self.readers):
            worker.start()

    def _options(
        self, rng: random.Random, *topics: str
    ) -> tuple[History, str, Sequence[tuple[str, int]], random.Random]:
        return self.history, self._servers, places(*topics), random.Random(rng.random())

    def flows(self, beyond: dict[str, int]) -> bool:
        """Whether every partition has taken messages since."""
        return all(self.history.acks[key] > beyond.get(key, 0) for key in (key_of(*each) for each in places(*TOPICS)))

    def finish(self) -> None:
        """Waits until all records are read, by the running consumers and by one that starts now."""
        for worker in self.writers:
            worker.stop()
        for worker in self.writers:
            worker.join(PATIENCE_S * 2)
            assert not worker.is_alive(), f"{worker.name} does not end"
        wait_until(lambda: not self.history.missing(AUDIENCES), "all is read", PATIENCE_S, 0.2, seen=self)
        last = Reader("last", self.history, self._servers, places(*LASTING), to_end=True)
        last.start()
        last.join(PATIENCE_S)
        assert not last.is_alive(), "not everything can be read from the beginning"
        for worker in self.readers:
            worker.stop()
            worker.join(60)

    def __repr__(self) -> str:
        frames = sys._current_frames()
        at = {
            worker.name: f"{frame.f_code.co_name}, line {frame.f_lineno}; {getattr(worker, 'last_refusal', '')}"
            for worker in self.readers
            if worker.ident is not None and (frame := frames.get(worker.ident)) is not None
        }
        return f"not read yet: {self.history.missing(AUDIENCES)}; readers are at: {at}; trouble: {self.trouble[-5:]}"

    @property
    def trouble(self) -> list[str]:
        return [line for worker in (*self.writers, *self.readers) for line in worker.trouble]


def be_well(cluster: Lab, nemesis: Nemesis, load: Load) -> None:
    """With nothing wrong any more, everything is led and in sync, and takes messages."""
    nemesis.rest_out()
    wait_until(cluster.stores.is_whole, "the store is whole", PATIENCE_S, 0.1)
    for broker in cluster.brokers.values():
        broker.wait_ready(PATIENCE_S)
    cluster.wait_whole(PATIENCE_S)
    before = dict(load.history.acks)
    wait_until(
        lambda: cluster.tend() or load.flows(before),
        "all partitions take messages",
        PATIENCE_S,
        0.1,
        seen=load,
    )


def misfortune(cluster: Lab, load: Load, rng: random.Random, note: Callable[[str], None]) -> Nemesis:
    """All of the faults, one after another, with moments of calm in which operators make mistakes."""
    nemesis = Nemesis(Faults(cluster, rng), note)
    oddities = itertools.cycle(rng.sample(sorted(ODDITIES), len(ODDITIES)))
    be_well(cluster, nemesis, load)
    for number in range(1, FAULTS + 1):
        if number % CALM_EVERY:
            nemesis.step()
            nemesis.rest(rng.uniform(0.2, 4))
            continue
        note("calm")
        be_well(cluster, nemesis, load)
        name = next(oddities)
        note(f"begin {name}")
        ODDITIES[name](cluster, rng)
        note(f"end {name}")
        nemesis.done[name] = nemesis.done.get(name, 0) + 1
    note("the last calm")
    be_well(cluster, nemesis, load)
    return nemesis


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["zookeeper", "etcd"])
def test_cluster_chaos(kind: str) -> None:
    print(f"SEED={SEED} FAULTS={FAULTS} store={kind}")  # noqa: T201
    rng = random.Random(f"{SEED} {kind}")
    with lab(kind) as cluster:
        (cluster.folder / "seed").write_text(f"SEED={SEED} FAULTS={FAULTS}\n")
        for topic, config in TOPICS.items():
            cluster.create(topic, PARTITIONS, config)
        load = Load(cluster, rng, PROTOCOLS[kind])
        with closing(load.history):
            nemesis = misfortune(cluster, load, rng, noting(cluster.folder / "faults.log"))
            load.finish()
        ended = [line for line in load.trouble if "ended" in line or "lost its place" in line]
        assert ended == []
        volatile = {key_of(*each) for each in places("memory")}
        anomalies = check(load.history.ops, volatile)
        assert not anomalies, f"{count(anomalies)}, for example {anomalies[:10]}"
        assert cluster.offline() == 0
        cluster.stop()
        size_bytes = cluster.check_replicas()
        cluster.check_logs()
    print(f"{sum(nemesis.done.values())} faults: {dict(sorted(nemesis.done.items()))}")  # noqa: T201
    print(f"not to be had here: {sorted(nemesis.not_here - set(nemesis.done)) or 'none'}")  # noqa: T201
    sent = len(load.history.due)
    print(f"{sent} messages acknowledged; {size_bytes} bytes the same on all replicas; {load.trouble[:20]}")  # noqa: T201
