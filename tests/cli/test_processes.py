"""`penstock serve --processes`: several supervised brokers on one machine."""

import os
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from penstock.cli.serve.processes import check_folder, serve_command, settings_per_broker
from penstock.client.cluster import ClientSettings, KafkaClient
from penstock.client.connection import ConnectionSettings
from penstock.client.security import SecuritySettings
from penstock.node import Address, NodeSettings
from tests.certificates import Certificates, properties
from tests.clients.waiting import wait_until
from tests.coordination.servers import EtcdEnsemble
from tests.ports import free_block

from .cli_runner import COMMAND, Cli, Direct
from .clusters import START_S, STOP_S, children_of, is_alive, look_at

READY = re.compile(r"penstock is ready: kafka (\S+), http (\S+), data (\S+), pid (\d+)")
PATIENCE_S = 90.0


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdEnsemble]:
    reason = EtcdEnsemble.why_not()
    if reason is not None:
        pytest.skip(reason)
    ensemble = EtcdEnsemble(tmp_path_factory.mktemp("etcd"))
    ensemble.start()
    yield ensemble
    ensemble.stop()


class Processes:
    """One supervisor and its brokers; ended by its own pid."""

    def __init__(self, folder: Path, *options: str, tls: bool = False) -> None:
        folder.mkdir(exist_ok=True)
        self.errors = folder / "errors.log"
        port = free_block()
        command = [COMMAND, "serve", "--data-dir", str(folder / "data"), *options]
        command += ["--http", f"127.0.0.1:{port + 10}"]
        command += ["--listener", f"SSL://127.0.0.1:{port}"] if tls else ["--listen", f"127.0.0.1:{port}"]
        with self.errors.open("ab") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_S)
        ready = READY.match(self._process.stdout.readline() if readable else "")
        if ready is None:
            self.end(signal.SIGKILL)
            raise AssertionError(f"it did not say that it is ready; it said:\n{self.errors.read_text()}")
        self.bootstrap, self.http = ready[1], ready[2]
        self.pid = int(ready[4])
        assert self.pid == self._process.pid

    @property
    def brokers(self) -> dict[str, int]:
        return children_of(self.pid)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        with self._process:
            self._process.send_signal(number)
            return self._process.wait(STOP_S)

    def finish(self) -> None:
        if self._process.poll() is None:
            self.end()
        assert "Traceback" not in self.errors.read_text(), self.errors.read_text()


@pytest.fixture
def started() -> Iterator[list[Processes]]:
    running: list[Processes] = []
    yield running
    for processes in running:
        processes.finish()


def all_gone(pids: set[int]) -> None:
    wait_until(lambda: not any(map(is_alive, pids)), f"{pids} are gone", timeout_s=PATIENCE_S)


def test_each_broker_is_given_the_same_keys() -> None:
    settings = NodeSettings(store="etcd://etcd-1:2379", credentials=Path("keys.yaml"))
    for share in settings_per_broker(settings, 3):
        command = serve_command(share, None, {}, "info")
        assert command[command.index("--credentials") + 1] == "keys.yaml"
    (without,) = settings_per_broker(NodeSettings(store="etcd://etcd-1:2379"), 1)
    assert "--credentials" not in serve_command(without, None, {}, "info")


@pytest.mark.timeout(300)
def test_brokers_are_started_kept_running_and_stopped_in_order(
    etcd: EtcdEnsemble, tmp_path: Path, started: list[Processes]
) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text(f'processes = 3\nstore = "{etcd.url("/three")}"\n[broker]\n"default.replication.factor" = 3\n')
    started.append(processes := Processes(tmp_path / "three", "--config", str(config)))
    assert len(processes.bootstrap.split(",")) == len(processes.http.split(",")) == 3
    ports = [int(address.rpartition(":")[2]) for address in processes.bootstrap.split(",")]
    assert ports == [ports[0], ports[0] + 1, ports[0] + 2]
    assert processes.brokers.keys() == {"1", "2", "3"}
    assert sorted(path.name for path in (tmp_path / "three" / "data").iterdir()) == ["1", "2", "3"]
    views = [look_at(address) for address in processes.bootstrap.split(",")]
    assert [view and sorted(view.brokers) for view in views] == [[1, 2, 3]] * 3, "each knows all of them"
    direct = Direct(processes.bootstrap)
    direct.create("orders", partitions=3)
    direct.publish("orders", b"one")

    victim = processes.brokers["2"]
    os.kill(victim, signal.SIGKILL)
    wait_until(
        lambda: "broker 2 restarted" in processes.errors.read_text(), "it was started again", timeout_s=PATIENCE_S
    )
    assert "broker 2 ended with signal SIGKILL" in processes.errors.read_text()
    assert processes.brokers.get("2") not in (None, victim)
    wait_until(
        lambda: (view := look_at(processes.bootstrap)) is not None and sorted(view.brokers) == [1, 2, 3],
        "all have it as one of them",
        timeout_s=PATIENCE_S,
    )
    direct.publish("orders", b"two")
    assert direct.values("orders") == [b"one", b"two"]

    pids = {processes.pid, *processes.brokers.values()}
    assert len(pids) == 4
    assert processes.end() == 0
    all_gone(pids)
    assert "controlled_shutdown_failed" not in processes.errors.read_text()


@pytest.mark.timeout(300)
def test_brokers_with_tls_alone_know_each_other_when_they_are_ready(
    etcd: EtcdEnsemble, tmp_path: Path, started: list[Processes]
) -> None:
    made = Certificates(tmp_path / "certificates")
    settings = {"ssl.keystore.location": made.server(), "ssl.truststore.location": made.trust}
    options = [text for name, value in settings.items() for text in ("--set", f"{name}={value}")]
    processes = Processes(tmp_path / "tls", "--processes", "2", "--store", etcd.url("/tls"), *options, tls=True)
    started.append(processes)
    security = SecuritySettings.parse(properties(made.trust))

    async def brokers_known_at(address: str) -> list[int]:
        settings = ClientSettings(connection=ConnectionSettings(security=security))
        async with KafkaClient(address.rpartition("://")[2], settings=settings) as client:
            return sorted(client.view.brokers)

    addresses = processes.bootstrap.split(",")
    assert len(addresses) == 2
    assert [uvloop.run(brokers_known_at(address)) for address in addresses] == [[1, 2], [1, 2]]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_brokers_leave_when_their_supervisor_is_killed(
    etcd: EtcdEnsemble, tmp_path: Path, started: list[Processes]
) -> None:
    options = ["--processes", "2", "--store", etcd.url("/killed")]
    started.append(processes := Processes(tmp_path / "killed", *options))
    pids = set(processes.brokers.values())
    assert len(pids) == 2
    processes.end(signal.SIGKILL)
    all_gone(pids)
    started.append(Processes(tmp_path / "killed", *options))


@pytest.mark.timeout(300)
def test_brokers_of_one_machine_are_one_place_for_replicas(
    etcd: EtcdEnsemble, tmp_path: Path, started: list[Processes]
) -> None:
    for machine, first in (("a", 1), ("b", 11)):
        options = ["--processes", "2", "--store", etcd.url("/machines"), "--node-id", str(first)]
        started.append(Processes(tmp_path / machine, *options, "--set", f"broker.host.id={machine}"))
    bootstrap = started[0].bootstrap
    wait_until(
        lambda: (view := look_at(bootstrap)) is not None and sorted(view.brokers) == [1, 2, 11, 12],
        "all four have joined",
        timeout_s=PATIENCE_S,
    )
    Cli(bootstrap).ok("topic", "create", "orders", "--partitions", "12", "--replication-factor", "2")
    view = look_at(bootstrap, "orders")
    assert view is not None
    placed = [set(partition.replicas) for partition in view.topics["orders"].partitions.values()]
    assert len(placed) == 12
    assert all(len(replicas & {1, 2}) == len(replicas & {11, 12}) == 1 for replicas in placed), placed
    assert set().union(*placed) == {1, 2, 11, 12}


@pytest.mark.timeout(300)
def test_a_broker_that_cannot_start_ends_all_of_them(etcd: EtcdEnsemble, tmp_path: Path) -> None:
    data = tmp_path / "data" / "2"
    data.mkdir(parents=True)
    (data / "identity").write_text('{"folder": "f", "node_id": 7, "cluster_id": "c"}')
    port = free_block()
    done = Cli(None)(
        *("serve", "--processes", "2", "--store", etcd.url("/refused"), "--data-dir", str(tmp_path / "data")),
        *("--listen", f"127.0.0.1:{port}", "--http", f"127.0.0.1:{port + 10}"),
    )
    assert done.returncode == 1
    said = done.stderr.decode()
    assert "the data folder belongs to broker 7" in said
    assert "Error: broker 2 ended with code 1 before it was ready; see above" in said


# -- what is refused before anything is started


def test_the_embedded_store_is_one_brokers_own(tmp_path: Path) -> None:
    said = Cli(None).refused("serve", "--processes", "3", "--data-dir", str(tmp_path), code=2)
    assert said.startswith("3 processes form a cluster of 3 brokers, which cannot share an embedded store; ")
    assert "--store zookeeper://… or etcd://…" in said
    assert "migrate-store" in said
    assert not list(tmp_path.iterdir())


def test_a_file_that_asks_for_no_process_is_refused(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("processes = 0\n")
    said = Cli(None).refused("serve", "--config", str(tmp_path / "penstock.toml"), code=2)
    assert "processes = 0 is not allowed; expected a whole number from 1 to 64" in said


def test_numbers_ports_and_folders_count_up() -> None:
    settings = NodeSettings(
        data_dir=Path("data"),
        store="etcd://a",
        node_id=4,
        listen=Address(host="0.0.0.0", port=9092),
        advertise=Address(host="queue.example.org", port=19092),
        http=Address(host="127.0.0.1", port=0),
    )
    found = settings_per_broker(settings, 3)
    assert [share.node_id for share in found] == [4, 5, 6]
    assert [str(share.data_dir) for share in found] == ["data/4", "data/5", "data/6"]
    assert [str(share.listen) for share in found] == ["0.0.0.0:9092", "0.0.0.0:9093", "0.0.0.0:9094"]
    assert [str(share.advertise) for share in found] == [
        f"queue.example.org:{port}" for port in (19092, 19093, 19094)
    ]
    assert {share.http.port for share in found} == {0}, "any free one stays that"


@pytest.mark.parametrize("http", ["127.0.0.1:9093", "0.0.0.0:9094"])
def test_ranges_of_ports_that_meet_are_refused(http: str) -> None:
    settings = NodeSettings(store="etcd://a", listen=Address.parse("127.0.0.1:9092"), http=Address.parse(http))
    with pytest.raises(ValueError, match=rf"collide at port {http[-4:]}"):
        settings_per_broker(settings, 3)


def test_ranges_of_ports_at_different_addresses_may_meet() -> None:
    settings = NodeSettings(
        store="etcd://a", listen=Address.parse("127.0.0.1:9092"), http=Address.parse("127.0.0.2:9092")
    )
    assert len(settings_per_broker(settings, 3)) == 3


def test_ports_end_somewhere() -> None:
    settings = NodeSettings(store="etcd://a", listen=Address.parse("127.0.0.1:65534"))
    with pytest.raises(ValueError, match="exceeds port 65535"):
        settings_per_broker(settings, 3)


def test_the_folder_of_a_single_broker_is_not_hidden_behind_new_ones(tmp_path: Path) -> None:
    check_folder(tmp_path)
    (tmp_path / "identity").touch()
    with pytest.raises(ValueError, match="is the data folder of a single broker"):
        check_folder(tmp_path)
