"""A streaming query on two worker processes whose executors, driver and broker are killed, with speculation.

Every row that went into the source must be in the target once, by a count that knows nothing of Spark or of us, and
by `audit`. The target is a topic, and a Delta table. The same with `delivery=at-least-once` shows rows twice, so that
the test is known to be able to fail.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.brokers import BrokerProcess
from tests.clients.transactional_producers import READ_COMMITTED, read_to_end
from tests.clients.waiting import wait_until

from .chaos_cluster import AFTER_THE_DECISION, CHECKPOINT, Cluster, Faults, Query, Source, tail
from .chaos_driver import SETTINGS
from .lab import Lab

ROUNDS = int(os.environ.get("ROUNDS", "30"))
PENSTOCK = str(Path(sys.executable).with_name("penstock"))
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


def in_lake(folder: Path) -> Counter[bytes]:
    """The same of a Delta table, read without Spark."""
    if not DeltaTable.is_deltatable(str(folder)):
        return Counter()
    return Counter(DeltaTable(str(folder)).to_pyarrow_dataset().to_table(columns=["value"])["value"].to_pylist())


def survive(
    cluster: Cluster,
    broker: BrokerProcess,
    query: Query,
    source: str,
    found: Callable[[], Counter[bytes]],
    rounds: int,
    rng: random.Random,
    log: Path,
) -> tuple[Counter[bytes], int]:
    """A query through so many faults; what it has written, and how many rows it was given."""
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
            # The last two always so: the worst moments are in every run.
            what = faults.strike({rounds - 2: CHECKPOINT, rounds - 1: AFTER_THE_DECISION}.get(number))
            say(f"round {number}: {what} after batch {query.last_commit}, {rows.count} rows")
        count = rows.finish()
        last, moved_s = query.last_commit, time.monotonic()
        while len(seen := found()) < count:
            query.ensure()
            if query.last_commit != last:
                last, moved_s = query.last_commit, time.monotonic()
            still_s = time.monotonic() - moved_s
            assert still_s < PROGRESS_S, f"{len(seen)} of {count} rows are there, and no more come\n{tail(log)}"
            time.sleep(1)
        query.kill()
    finally:
        rows.finish()
        query.kill()
    say(f"{count} rows, {query.starts} drivers, {dict(faults.done)}")
    return seen, count


def survive_copying(
    cluster: Cluster, broker: BrokerProcess, tmp_path: Path, delivery: str, rounds: int, rng: random.Random
) -> tuple[Counter[bytes], int]:
    """From topic to topic over a shuffle."""
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

    def command(position: str) -> list[str]:
        script = Path(__file__).with_name("chaos_driver.py")
        return [sys.executable, str(script), json.dumps(plan | {"position": position})]

    log = tmp_path / "driver.log"
    query = Query(command, tmp_path / "checkpoint", log)
    found = partial(counted, broker.kafka, target)
    return survive(cluster, broker, query, source, found, rounds, rng, log)


def audit(broker: BrokerProcess, expected: str, actual: str) -> dict[str, Any]:
    """What our own proof says of it."""
    command = [PENSTOCK, "pipeline", "run", "audit", "--json", "--master", "local[2]", "--bootstrap", broker.kafka]
    command += ["-o", f"expected.topic={expected}", "-o", actual]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRESS_S, check=False)
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def check(found: Counter[bytes], count: int) -> None:
    expected = {b"%d" % number for number in range(count)}
    assert expected - found.keys() == set(), "rows were lost"
    assert found.keys() - expected == set(), "rows came from nowhere"
    assert {value: times for value, times in found.items() if times > 1} == {}, "rows are there more than once"


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("SEED", "0")) or random.SystemRandom().getrandbits(32)
    say(f"seed {seed}")
    return random.Random(seed)


def test_every_row_is_written_once_though_processes_are_killed(
    cluster: Cluster, own_broker: Callable[..., BrokerProcess], tmp_path: Path, rng: random.Random
) -> None:
    broker = own_broker()
    found, count = survive_copying(cluster, broker, tmp_path, "exactly-once", ROUNDS, rng)
    check(found, count)
    report = audit(broker, "source", "actual.topic=target")
    assert (report["ok"], report["actual"]) == (True, count), report


def test_every_row_is_in_a_delta_table_once_though_processes_are_killed(
    cluster: Cluster, own_broker: Callable[..., BrokerProcess], tmp_path: Path, rng: random.Random
) -> None:
    """The archive on the same cluster. It finds its position without its checkpoint."""
    broker = own_broker()
    source = Lab(broker.kafka).create("source", PARTITIONS)
    lake = tmp_path / "lake"
    options = {
        "topics": source,
        "path": str(lake),
        "format": "delta",
        "trigger": "100 ms",
        "max_rows": "1500",
        "spark": json.dumps(SETTINGS),
    }
    command = [PENSTOCK, "pipeline", "run", "archive", "--json", "--continuous"]
    command += ["--master", cluster.master, "--bootstrap", broker.kafka]
    command += [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    log = tmp_path / "driver.log"
    query = Query(lambda position: command, lake / "_penstock" / "checkpoint", log)
    found, count = survive(cluster, broker, query, source, partial(in_lake, lake), ROUNDS, rng, log)
    check(found, count)
    report = audit(broker, source, f"actual.path={lake}")
    assert (report["ok"], report["actual"]) == (True, count), report


def test_without_transactions_rows_are_there_more_than_once(
    cluster: Cluster, own_broker: Callable[..., BrokerProcess], tmp_path: Path, rng: random.Random
) -> None:
    found, count = survive_copying(cluster, own_broker(), tmp_path, "at-least-once", max(3, ROUNDS // 3), rng)
    assert {b"%d" % number for number in range(count)} == found.keys(), "rows were lost"
    assert sum(found.values()) > count, "nothing was doubled: the test above would not notice if anything was"
