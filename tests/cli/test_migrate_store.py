"""`penstock cluster migrate-store`: a single broker's cluster goes to a real store, and everything is still there."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.clients.waiting import wait_until
from tests.coordination.servers import KINDS, Ensemble

from .cli_runner import COMMAND, RUN_S, Cli, Direct, ServeProcess
from .clusters import look_at

MIGRATE = ("cluster", "migrate-store")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Ensemble]]:
    started: dict[str, Ensemble] = {}

    def ensemble(kind: str) -> Ensemble:
        reason = KINDS[kind].why_not()
        if reason is not None:
            pytest.skip(reason)
        if kind not in started:
            started[kind] = KINDS[kind](tmp_path_factory.mktemp(kind)).start()
        return started[kind]

    yield ensemble
    for running in started.values():
        running.stop()


def fill(bootstrap: str) -> None:
    """Messages, an open and a finished transaction, what a group has committed."""
    Direct(bootstrap).create("orders", partitions=3, retention_ms="123456789")
    Direct(bootstrap).publish("orders", b"one", b"two", partition=1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "billing"})
    producer.init_transactions(RUN_S)
    producer.begin_transaction()
    producer.produce("orders", b"three", partition=2)
    producer.commit_transaction(RUN_S)
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": "workers"})
    group.commit(offsets=[TopicPartition("orders", 1, 1)], asynchronous=False)
    group.close()


def check(bootstrap: str, cluster_id: str, topic_id: bytes) -> None:
    """All that was filled in is there, under the same ids, and it goes on."""
    view = look_at(bootstrap, "orders")
    assert view is not None
    assert (view.cluster_id, view.topics["orders"].topic_id) == (cluster_id, topic_id)
    assert {b"one", b"two", b"three"} <= set(Direct(bootstrap).values("orders"))
    (described,) = Cli(bootstrap).json("topic", "describe", "orders")
    assert ("retention.ms", "123456789") in {(entry["name"], entry["value"]) for entry in described["configs"]}
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": "workers"})
    (committed,) = wait_until(
        lambda: group.committed([TopicPartition("orders", 1)], timeout=RUN_S), "the group's offset is there"
    )
    assert committed.offset == 1
    group.close()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "billing"})
    producer.init_transactions(RUN_S)
    producer.begin_transaction()
    producer.produce("orders", b"four", partition=2)
    producer.commit_transaction(RUN_S)
    assert b"four" in Direct(bootstrap).values("orders")


@contextmanager
def running(folder: Path, *options: str) -> Iterator[ServeProcess]:
    """A broker on the folder; it is stopped properly even if the test fails."""
    broker = ServeProcess(folder, *options)
    try:
        yield broker
    finally:
        broker.stop()


def ids(bootstrap: str) -> tuple[str, bytes]:
    view = look_at(bootstrap, "orders")
    assert view is not None
    return view.cluster_id, view.topics["orders"].topic_id


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["etcd", pytest.param("zookeeper", marks=pytest.mark.slow)])
def test_everything_is_there_afterwards(kind: str, server: Callable[[str], Ensemble], tmp_path: Path) -> None:
    url, data_dir = server(kind).url("/moved"), tmp_path / "data"
    cli, arguments = Cli(None), (*MIGRATE, "--data-dir", str(data_dir), "--to", url)
    with running(tmp_path) as broker:
        fill(broker.bootstrap)
        before = ids(broker.bootstrap)
        assert "is used by another penstock process" in cli.refused(*arguments, "--execute", code=1)

    (planned,) = cli.json(*arguments)
    assert (planned["cluster_id"], planned["topics"], planned["executed"]) == (before[0], 3, False)
    assert planned["partitions"] == 3 + 50 + 50
    assert planned["missing"] == planned["keys"] > 100
    assert "(run with --execute)" in cli.ok(*arguments)
    with running(tmp_path) as broker:
        assert ids(broker.bootstrap) == before, "a plan changes nothing"

    assert f"start the broker with --store {url}" in cli.ok(*arguments, "--execute")
    done = cli("serve", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    assert done.returncode == 1
    assert f"was moved to {url}; start with --store {url}" in done.stderr.decode()

    (again,) = cli.json(*arguments, "--execute")
    assert again["missing"] == 0
    for _ in range(2):
        with running(tmp_path, "--store", url) as moved:
            check(moved.bootstrap, *before)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_at_any_time_it_is_finished_by_the_next_run(server: Callable[[str], Ensemble], tmp_path: Path) -> None:
    url = server("etcd").url("/killed")
    with running(tmp_path) as broker:
        fill(broker.bootstrap)
        before = ids(broker.bootstrap)
    command = [COMMAND, *MIGRATE, "--data-dir", str(tmp_path / "data"), "--to", url, "--execute"]
    ends_s, runs = 0.3, 0
    while True:
        runs += 1
        try:
            done = subprocess.run(command, capture_output=True, timeout=ends_s, check=False)  # killed when time is up
        except subprocess.TimeoutExpired:
            ends_s *= 1.3
            continue
        assert done.returncode == 0, done
        break
    assert runs > 1
    with running(tmp_path, "--store", url) as moved:
        check(moved.bootstrap, *before)


def test_a_folder_without_a_store_is_refused(tmp_path: Path) -> None:
    said = Cli(None).refused(*MIGRATE, "--data-dir", str(tmp_path), "--to", "etcd://127.0.0.1:1", code=1)
    assert said == f"no embedded store in {tmp_path}; give the --data-dir of a broker"
    assert not list(tmp_path.iterdir())


def test_a_target_that_cannot_be_reached_seals_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        data_dir = str(broker.data_dir)
    reason = KINDS["etcd"].why_not()
    if reason is not None:
        pytest.skip(reason)
    arguments = ("--data-dir", data_dir, "--to", "etcd://127.0.0.1:1", "--execute")
    assert "etcd at 127.0.0.1:1" in Cli(None).refused(*MIGRATE, *arguments, code=1)
    with running(tmp_path) as broker:
        assert look_at(broker.bootstrap) is not None


def test_a_target_that_is_no_store_is_a_misuse(tmp_path: Path) -> None:
    (tmp_path / "metadata.db").touch()
    for url in ("embedded", "consul://a:1"):
        said = Cli(None).refused(*MIGRATE, "--data-dir", str(tmp_path), "--to", url, code=1)
        assert "is not a store URL" in said
