"""`penstock dev`: a whole cluster by one command, which leaves nothing behind."""

import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cli.dev.cluster_folder import ClusterMismatch, FreePorts, Plan
from penstock.coordination.local_servers import KINDS, why_not
from penstock.node import Address
from tests.clients.waiting import wait_until
from tests.ports import free_block

from .cli_runner import Cli, Direct
from .clusters import DevProcess, at_work_in, is_alive, look_at

PATIENCE_S = 90.0

Start = Callable[..., DevProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a cluster in the test's own folder."""
    started: list[DevProcess] = []

    def dev(*options: str) -> DevProcess:
        available()
        started.append(DevProcess(tmp_path / "cluster", *options))
        return started[-1]

    yield dev
    for process in started:
        process.finish()


def available(kind: str | None = None) -> str:
    """A kind of store that can be started here."""
    reasons = {each: why_not(each) for each in ([kind] if kind else KINDS)}
    for each, reason in reasons.items():
        if reason is None:
            return each
    pytest.skip("; ".join(f"{each}: {reason}" for each, reason in reasons.items()))


def all_gone(pids: set[int]) -> None:
    wait_until(lambda: not any(map(is_alive, pids)), f"{pids} are gone", timeout_s=PATIENCE_S)


def wait_for_brokers(bootstrap: str, *node_ids: int) -> None:
    wait_until(
        lambda: (view := look_at(bootstrap)) is not None and sorted(view.brokers) == sorted(node_ids),
        f"the brokers are {node_ids}",
        timeout_s=PATIENCE_S,
    )


def replicas_in_sync(bootstrap: str, topic: str) -> int:
    view = look_at(bootstrap, topic)
    return min(len(partition.isr) for partition in view.topics[topic].partitions.values()) if view else 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["etcd", pytest.param("zookeeper", marks=pytest.mark.slow)])
def test_a_cluster_starts_stops_in_order_and_is_the_same_when_it_starts_again(
    kind: str, start: Start, tmp_path: Path
) -> None:
    available(kind)
    dev = start("--coordination", kind)
    assert dev.file == dev.summary
    assert [broker["node_id"] for broker in dev.summary["brokers"]] == [1, 2, 3]
    assert dev.bootstrap == ",".join(broker["listen"] for broker in dev.summary["brokers"])
    assert dev.summary["coordination"]["kind"] == kind
    assert dev.summary["coordination"]["url"].startswith(f"{kind}://127.0.0.1:")
    assert len(dev.pids) == 4
    assert all(map(is_alive, dev.pids))
    direct = Direct(dev.bootstrap)
    direct.create("orders", partitions=3)
    direct.publish("orders", b"one", b"two")
    view = look_at(dev.bootstrap, "orders")
    assert view is not None
    assert {len(partition.replicas) for partition in view.topics["orders"].partitions.values()} == {3}
    (described,) = Cli(dev.bootstrap).json("topic", "describe", "orders")
    assert ("min.insync.replicas", "2") in {(entry["name"], entry["value"]) for entry in described["configs"]}
    assert dev.end(signal.SIGINT) == 0
    assert dev.file is None
    all_gone(dev.pids)
    for name in ("broker-1", "broker-2", "broker-3"):
        assert "penstock is stopping" in dev.log(name)
        assert "Traceback" not in dev.log(name)
        assert "controlled_shutdown_failed" not in dev.log(name), "others led on, or all left together"

    again = start()
    found = look_at(again.bootstrap, "orders")
    assert found is not None
    assert (found.cluster_id, found.topics["orders"].topic_id) == (view.cluster_id, view.topics["orders"].topic_id)
    assert Direct(again.bootstrap).values("orders") == [b"one", b"two"]
    assert again.end(signal.SIGTERM) == 0
    all_gone(again.pids)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_is_left_running_when_dev_itself_is_killed(start: Start) -> None:
    dev = start("--brokers", "2")
    Direct(dev.bootstrap).create("orders")
    Direct(dev.bootstrap).publish("orders", b"one")
    dev.end(signal.SIGKILL)
    all_gone(dev.pids)
    again = start()
    assert Direct(again.bootstrap).values("orders") == [b"one"]
    assert again.file == again.summary, "not what the killed one left"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_broker_that_dies_is_reported_and_the_others_go_on(start: Start) -> None:
    dev = start()
    direct = Direct(dev.bootstrap)
    direct.create("orders")
    direct.publish("orders", b"one")
    victim = dev.pid_of(2)
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: "broker 2 ended with signal SIGKILL" in dev.said, "it is reported", timeout_s=PATIENCE_S)
    wait_until(lambda: dev.pid_of(2) is None, "the file shows it", timeout_s=PATIENCE_S)
    wait_for_brokers(dev.bootstrap, 1, 3)
    direct.publish("orders", b"two")
    assert direct.values("orders") == [b"one", b"two"]
    assert dev.end() == 0
    all_gone(dev.pids)


@pytest.mark.timeout(300)
def test_when_no_broker_is_left_dev_ends_with_an_error(start: Start) -> None:
    dev = start("--brokers", "1")
    (victim,) = (broker["pid"] for broker in dev.summary["brokers"])
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: "Error: all brokers have exited" in dev.said, "it reports that", timeout_s=PATIENCE_S)
    all_gone(dev.pids)
    assert dev.file is None


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_with_restart_a_broker_and_the_store_that_die_come_back(start: Start) -> None:
    dev = start("--restart", "--brokers", "2")
    direct = Direct(dev.bootstrap)
    direct.create("orders")
    direct.publish("orders", b"one")
    victims = dev.pid_of(2), dev.summary["coordination"]["pid"]
    assert victims[0] is not None
    os.kill(victims[0], signal.SIGKILL)
    wait_until(lambda: dev.pid_of(2) not in (None, victims[0]), "broker 2 is back", timeout_s=PATIENCE_S)
    wait_for_brokers(dev.bootstrap, 1, 2)
    os.kill(victims[1], signal.SIGKILL)

    def store_is_back() -> bool:
        file = dev.file
        return file is not None and file["coordination"]["pid"] not in (None, victims[1])

    wait_until(store_is_back, "the store is back", timeout_s=PATIENCE_S)
    wait_until(lambda: replicas_in_sync(dev.bootstrap, "orders") == 2, "all are in sync", timeout_s=PATIENCE_S)
    direct.publish("orders", b"two")
    assert direct.values("orders") == [b"one", b"two"]
    file = dev.file
    assert file is not None
    pids = {file["coordination"]["pid"], *(broker["pid"] for broker in file["brokers"])}
    assert dev.end() == 0
    all_gone(pids)


@pytest.mark.timeout(300)
def test_running_processes_are_shown_in_a_table_and_a_folder_has_one_cluster(start: Start, tmp_path: Path) -> None:
    kind = available()
    dev = start("--brokers", "1")
    refused = Cli(None).refused("dev", "--data-dir", str(dev.folder), code=1)
    assert "is used by another penstock process" in refused
    assert dev.end() == 0
    process = Cli(None).start("dev", "--data-dir", str(dev.folder))
    assert process.stdout is not None
    lines = []
    while not lines or "export" not in lines[-1]:
        lines.append(process.stdout.readline().decode())
        assert lines[-1], "it ended"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert lines[0].split() == ["WHAT", "PID", "LISTEN", "HTTP", "LOG"]
    assert lines[1].split()[0] == kind
    assert lines[1].split()[-1] == str(dev.folder / "logs" / f"{kind}.log")
    assert lines[2].split()[:2] == ["broker", "1"]
    other = next(each for each in KINDS if each != kind)
    assert f"uses {kind}, not {other}" in Cli(None).refused(
        "dev", "--data-dir", str(dev.folder), "--coordination", other, code=1
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_cluster_that_is_stopped_while_it_starts(tmp_path: Path, number: signal.Signals) -> None:
    available()
    folder, port = tmp_path / "cluster", free_block()
    options = ("--data-dir", str(folder), "--listen", f"127.0.0.1:{port}", "--http", f"127.0.0.1:{port + 10}")
    process = Cli(None).start("dev", "--brokers", "2", *options)
    wait_until(lambda: (folder / "logs" / "broker-1.log").exists(), "a broker is started", timeout_s=PATIENCE_S)
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == (0 if number == signal.SIGINT else -signal.SIGKILL)
    wait_until(lambda: not at_work_in(folder), "all of it is gone", timeout_s=PATIENCE_S)
    assert not (folder / "cluster.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_second_ctrl_c_stops_it_without_waiting(start: Start) -> None:
    dev = start("--brokers", "2")
    paused = dev.pid_of(2)
    assert paused is not None
    os.kill(paused, signal.SIGSTOP)
    dev.tell(signal.SIGINT)
    wait_until(lambda: dev.file is None, "it is stopping", timeout_s=PATIENCE_S)
    assert dev.end(signal.SIGINT) == 0
    all_gone(dev.pids)


def test_a_server_that_is_not_installed_is_named_with_how_to_get_it(tmp_path: Path) -> None:
    cli = Cli(None)
    (tmp_path / "bin").mkdir()
    cli.environment["PATH"] = str(tmp_path / "bin")
    said = cli.refused("dev", "--coordination", "etcd", "--data-dir", str(tmp_path / "cluster"), code=1)
    assert said.startswith("etcd cannot be started: ")
    assert "install" in said


@pytest.mark.parametrize("command", [("dev",), ("serve",), ("cluster", "migrate-store")], ids=" ".join)
def test_help_has_examples(command: tuple[str, ...]) -> None:
    said = Cli(None).ok(*command, "--help")
    assert f"\n    penstock {' '.join(command)}" in said.split("Examples:")[1]


# -- plans and ports


def plan(folder: Path, brokers: int | None = None, factor: int | None = None) -> Plan:
    return Plan.of(folder, None, brokers, factor)


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """A folder that holds a cluster of three."""
    Plan(coordination=available(), brokers=3).save(tmp_path)
    return tmp_path


def test_a_folder_keeps_its_plan(known: Path) -> None:
    assert plan(known) == Plan(coordination=available(), brokers=3)
    grown = plan(known, brokers=5)
    assert (grown.brokers, grown.replicas) == (5, 3)
    with pytest.raises(ClusterMismatch, match="has 3 brokers, requested 2: it can grow"):
        plan(known, brokers=2)


@pytest.mark.parametrize(
    ("brokers", "factor", "replicas", "in_sync"),
    [(1, None, 1, 1), (2, None, 2, 1), (3, None, 3, 2), (7, None, 3, 2), (3, 2, 2, 1), (5, 5, 5, 2)],
)
def test_topics_have_as_many_replicas_as_there_are_brokers_up_to_three(
    brokers: int, factor: int | None, replicas: int, in_sync: int
) -> None:
    settings = Plan(coordination="etcd", brokers=brokers, replication_factor=factor).settings
    assert settings == {
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
    }


def test_more_replicas_than_brokers_are_refused(known: Path) -> None:
    with pytest.raises(ClusterMismatch, match="--replication-factor 4 exceeds the 3 brokers"):
        plan(known, factor=4)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"brokers": 3}'])
def test_a_damaged_plan_is_not_taken_for_a_new_folder(tmp_path: Path, text: str) -> None:
    (tmp_path / "dev.json").write_text(text)
    with pytest.raises(ClusterMismatch, match="is damaged"):
        plan(tmp_path)


def test_ports_count_up_past_those_that_are_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        ports = FreePorts()
        first = ports.free(Address(host="127.0.0.1", port=taken))
        assert first.port > taken
        assert ports.free(Address(host="127.0.0.1", port=taken)).port > first.port, "each is given once"


def test_clusters_that_are_started_at_the_same_moment_are_given_different_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        wanted = Address(host="127.0.0.1", port=listener.getsockname()[1])
    found = {FreePorts().free(wanted).port for _ in range(3)}
    assert len(found) == 3, "no process listens on any of them yet"


def test_any_free_port_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = free_block()
    second = first + 1
    offered = iter([first, first, second])
    monkeypatch.setattr(FreePorts, "_try", lambda *_: next(offered))  # the kernel may offer a port again
    anywhere = Address(host="127.0.0.1", port=0)
    assert [FreePorts().free(anywhere).port, FreePorts().free(anywhere).port] == [first, second]


def test_ports_are_marked_in_a_private_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shared, theirs = tmp_path / "shared", tmp_path / "theirs"
    for folder in (shared, theirs):
        folder.mkdir()
    (shared / f"penstock-ports-{os.getuid()}").symlink_to(theirs)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = FreePorts().free(Address(host="127.0.0.1", port=free_block()))
    assert [path.name for path in (tmp_path / "cache" / "penstock" / "ports").iterdir()] == [str(found.port)]
    assert list(theirs.iterdir()) == []


def test_port_zero_is_any_free_one() -> None:
    ports, anywhere = FreePorts(), Address(host="127.0.0.1", port=0)
    found = {ports.free(anywhere).port for _ in range(5)}
    assert len(found) == 5
    assert 0 not in found
