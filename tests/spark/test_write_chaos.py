"""A streaming query on two worker processes whose executors, driver and broker are killed, with speculation.

Every row that went into the source must be in the target once, by a count that knows nothing of Spark or of us. The
same with `delivery=at-least-once` shows rows twice, so that the test is known to be able to fail.
"""

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.clients.transacting import READ_COMMITTED, read_to_end
from tests.clients.waiting import wait_until

from .chaos_cluster import AFTER_THE_DECISION, Cluster, Faults, Query, Source, tail
from .lab import Lab

ROUNDS = int(os.environ.get("ROUNDS", "30"))
PARTITIONS = 3
PROGRESS_S = 240.0
"""Far more than a restart of everything takes."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(ROUNDS * 60 + 900)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    yield found
    found.close()


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def counted(bootstrap: str, topic: str) -> Counter[bytes]:
    """What a reader of committed records finds, and how often."""
    return Counter(
        value for number in range(PARTITIONS) for value in read_to_end(bootstrap, topic, number, READ_COMMITTED)
    )


def survive(
    cluster: Cluster, broker: BrokerProcess, tmp_path: Path, delivery: str, rounds: int, rng: random.Random
) -> tuple[Counter[bytes], int]:
    """A query through so many faults; what it has written, and how many rows it was given."""
    lab = Lab(broker.kafka)
    source, target = lab.create("source", PARTITIONS), lab.create("target", PARTITIONS)
    plan = {
        "master": cluster.master,
        "bootstrap": broker.kafka,
        "source": source,
        "target": target,
        "checkpoint": str(tmp_path / "checkpoint"),
        "delivery": delivery,
        "folder": str(tmp_path),
    }
    log = tmp_path / "driver.log"
    query = Query(plan, log)
    faults = Faults(rng, cluster, query, broker)
    rows = Source(broker.kafka, source)

    def is_further(than: int, starts: int) -> bool:
        query.ensure()
        assert query.starts - starts < 8, "the driver ends again and again"
        return query.last_commit > than

    try:
        for number in range(rounds):
            look = partial(is_further, query.last_commit, query.starts)
            try:
                wait_until(look, "a batch is done", PROGRESS_S, 0.1)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{tail(log)}") from error
            time.sleep(rng.uniform(0, 1.5))
            # The last one always so: the worst moment is in every run.
            what = faults.strike(AFTER_THE_DECISION if number == rounds - 1 else None)
            say(f"round {number}: {what} after batch {query.last_commit}, {rows.count} rows")
        count = rows.finish()
        last, moved_s = query.last_commit, time.monotonic()
        while len(found := counted(broker.kafka, target)) < count:
            query.ensure()
            if query.last_commit != last:
                last, moved_s = query.last_commit, time.monotonic()
            still_s = time.monotonic() - moved_s
            assert still_s < PROGRESS_S, f"{len(found)} of {count} rows are there, and no more come\n{tail(log)}"
            time.sleep(1)
        query.kill()
    finally:
        rows.finish()
        query.kill()
    say(f"{delivery}: {count} rows, {query.last_commit + 1} batches, {query.starts} drivers, {dict(faults.done)}")
    return found, count


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("SEED", "0")) or random.SystemRandom().getrandbits(32)
    say(f"seed {seed}")
    return random.Random(seed)


def test_every_row_is_there_once_whoever_is_killed(
    cluster: Cluster, own_broker: Callable[..., BrokerProcess], tmp_path: Path, rng: random.Random
) -> None:
    found, count = survive(cluster, own_broker(), tmp_path, "exactly-once", ROUNDS, rng)
    expected = {b"%d" % number for number in range(count)}
    assert expected - found.keys() == set(), "rows were lost"
    assert found.keys() - expected == set(), "rows came from nowhere"
    assert {value: times for value, times in found.items() if times > 1} == {}, "rows are there more than once"


def test_without_transactions_rows_are_there_more_than_once(
    cluster: Cluster, own_broker: Callable[..., BrokerProcess], tmp_path: Path, rng: random.Random
) -> None:
    found, count = survive(cluster, own_broker(), tmp_path, "at-least-once", max(3, ROUNDS // 3), rng)
    assert {b"%d" % number for number in range(count)} == found.keys(), "rows were lost"
    assert sum(found.values()) > count, "nothing was doubled: the test above would not notice if anything was"
