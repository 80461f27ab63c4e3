"""Spark Connect: the data source, exactly-once writes and every built-in pipeline, on real servers."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.connect import check_server
from penstock.spark.errors import SparkFailed
from penstock.spark.pipelines.catalogue import load
from penstock.spark.pipelines.document import PipelineInvalid
from penstock.spark.sessions import choose_master, session
from tests.brokers import BrokerProcess
from tests.clients.drivers import Outgoing
from tests.clients.waiting import wait_until
from tests.ports import free_port

from .connect_server import ConnectServer
from .lab import Lab
from .programs import PROGRAM_S, failure_of, run_program, start_program

COMMAND = str(Path(sys.executable).with_name("penstock"))
slow = pytest.mark.slow
long = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with ConnectServer(tmp_path_factory.mktemp("connect")) as server:
        yield server


def values(lab: Lab, topic: str) -> list[int]:
    return sorted(int(value or b"") for value in lab.values(topic))


# -- the data source


@slow
@long
def test_topics_are_read_and_written_in_batches_and_streams(
    server: ConnectServer, broker: BrokerProcess, lab: Lab, topic: str, checkpoint: str
) -> None:
    for name in (topic, f"{topic}-copy"):
        lab.create(name, 2)
    found = run_program(
        "topics", where={"remote": server.url}, bootstrap=broker.kafka, topic=topic, checkpoint=checkpoint
    )
    expected = sorted(map(str, range(100)))
    assert found == {"batch": expected, "stream": expected}


@slow
@long
def test_sql_tables_are_created_written_and_read(
    server: ConnectServer, broker: BrokerProcess, lab: Lab, topic: str
) -> None:
    lab.create(topic)
    found = run_program("tables", where={"remote": server.url}, bootstrap=broker.kafka, topic=topic)
    assert found["values"] == ["one", "two"]
    assert "there is no option 'topik' for a table; did you mean 'topic'?" in found["refused"]


def forget_last_batch(checkpoint: str) -> None:
    """Takes away Spark's note that the last batch is done: so the disk looked a moment before."""
    commits = Path(checkpoint) / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / f".{last}.crc").unlink(missing_ok=True)
    (commits / str(last)).unlink()


@slow
@long
def test_a_batch_of_foreach_batch_that_is_repeated_is_written_once(
    server: ConnectServer, broker: BrokerProcess, lab: Lab, topic: str, checkpoint: str
) -> None:
    lab.create(topic)
    lab.create(f"{topic}-each")
    lab.fill(topic, [Outgoing(value=b"%d" % number) for number in range(120)])
    given = {"bootstrap": broker.kafka, "topic": topic, "checkpoint": checkpoint}
    run_program("foreach_batch", where={"remote": server.url}, **given)
    forget_last_batch(checkpoint)
    run_program("foreach_batch", where={"remote": server.url}, **given)
    assert values(lab, f"{topic}-each") == list(range(120))


@slow
@long
def test_a_server_that_is_killed_continues_its_query_from_the_checkpoint(
    broker: BrokerProcess, lab: Lab, topic: str, checkpoint: str, tmp_path: Path
) -> None:
    lab.create(topic)
    lab.create(f"{topic}-each")
    lab.fill(topic, [Outgoing(value=b"%d" % number) for number in range(300)])
    given = {"bootstrap": broker.kafka, "topic": topic, "checkpoint": checkpoint}
    with ConnectServer(tmp_path / "one") as server:
        program = start_program("foreach_batch", where={"remote": server.url}, **given)
        try:
            wait_until((Path(checkpoint) / "commits" / "1").exists, "the second batch is done", PROGRAM_S)
            server.kill()
        finally:
            program.kill()
            program.communicate()
    assert not (Path(checkpoint) / "commits" / "5").exists(), "it was done before it was killed"
    with ConnectServer(tmp_path / "two") as server:
        run_program("foreach_batch", where={"remote": server.url}, **given)
    assert values(lab, f"{topic}-each") == list(range(300))


# -- servers that cannot be used


@slow
@long
def test_a_server_whose_python_lacks_the_package_is_refused(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    with ConnectServer(tmp_path, python=python, environment={"PYTHONPATH": ""}) as server:
        said = failure_of("connected", where={"remote": server.url})
    assert said.startswith(f"Spark's workers run {python}, which lacks a package: No module named 'penstock'")
    assert "Install penstock[spark] for it, or set PYSPARK_PYTHON" in said


@slow
@long
def test_a_token_is_checked_and_never_shown(tmp_path: Path) -> None:
    with ConnectServer(tmp_path, environment={"SPARK_CONNECT_AUTHENTICATE_TOKEN": "right"}) as server:
        said = failure_of("connected", where={"remote": f"{server.url}/;token=wrong"})
        assert said == (
            f"{server.url} cannot be used as a Spark Connect server: it refuses the token; give the right one as "
            "sc://HOST:PORT/;token=TOKEN"
        )
        assert run_program("connected", where={"remote": f"{server.url}/;token=right"}) == 3


@slow  # it waits
def test_an_address_where_something_else_answers_is_refused(broker: BrokerProcess) -> None:
    with pytest.raises(SparkFailed, match=f"sc://{broker.kafka} is no Spark Connect server: it does not answer"):
        check_server(f"sc://{broker.kafka}")


def test_an_address_where_nothing_answers_is_refused_at_once() -> None:
    with pytest.raises(SparkFailed, match=r"no Spark Connect server at sc://127\.0\.0\.1:\d+: Connection ref"):
        check_server(f"sc://127.0.0.1:{free_port()}/;token=secret")


def test_remote_is_the_address_of_a_connect_server(tmp_path: Path) -> None:
    with pytest.raises(SparkFailed, match=r"remote is 'http://localhost'; it must be the address of a Spark Connect"):
        session(remote="http://localhost")
    with pytest.raises(SparkFailed, match="give master or remote, not both"):
        session(remote="sc://localhost", master="local[2]")
    file = tmp_path / "a.yaml"
    file.write_text("sources: {a: {topic: a}}\nremote: spark://host:7077\n")
    with pytest.raises(PipelineInvalid) as refused:
        load(str(file))
    assert "2:9: remote: 'spark://host:7077' is not the address of a Spark Connect server" in str(refused.value)


def test_the_command_line_overrides_the_file_and_that_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://environment")
    assert choose_master("local[2]", "sc://file") == "local[2]"
    assert choose_master(None, "sc://file") == "sc://file"
    assert choose_master(None, None) == "sc://environment"
    monkeypatch.delenv("SPARK_REMOTE")
    assert choose_master(None, None) == "local[*]"


# -- pipelines


class ConnectPipelines:
    """Runs `penstock pipeline run` on a Spark Connect server, in a folder of its own."""

    def __init__(self, url: str, bootstrap: str, folder: Path) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.url = url

    def start(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [COMMAND, "pipeline", "run", *arguments, "--json"],
            cwd=self.folder,
            env=os.environ | {"PENSTOCK_BOOTSTRAP": self.bootstrap},
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )

    def __call__(self, target: str, *flags: str, **options: Any) -> dict[str, Any]:
        """Runs one and returns its report; `__` in the name of an option stands for a dot."""
        named = [f"{name.replace('__', '.')}={value}" for name, value in options.items()]
        done = self.start(target, "--master", self.url, *(word for each in named for word in ("-o", each)), *flags)
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return report


@pytest.fixture
def pipelines(server: ConnectServer, broker: BrokerProcess, tmp_path: Path) -> ConnectPipelines:
    return ConnectPipelines(server.url, broker.kafka, tmp_path)


def orders(count: int, start: int = 0) -> list[Outgoing]:
    return [
        Outgoing(value=json.dumps({"id": number, "item": f"i{number % 3}"}).encode(), key=b"%d" % (number % 2))
        for number in range(start, start + count)
    ]


def shown(lab: Lab, topic: str) -> list[Mapping[str, Any]]:
    return [json.loads(value or b"") for value in lab.values(topic)]


@slow
@long
def test_sql_goes_to_the_screen_to_topics_and_into_lakes(
    pipelines: ConnectPipelines, lab: Lab, topic: str, tmp_path: Path
) -> None:
    for name in (topic, f"{topic}-all", f"{topic}-counts"):
        lab.create(name)
    lab.fill(topic, orders(30))
    source = {"sources__orders__topic": topic}
    counts = "SELECT item, count(*) AS n FROM orders GROUP BY item"
    report = pipelines("sql", "--once", **source, sql=f"{counts} ORDER BY item")
    assert [row["n"] for row in report["tables"]["result"]] == [10, 10, 10]
    for run in range(2):
        if run:
            lab.fill(topic, orders(30, start=30))
        into = {"sink__topic": f"{topic}-counts", "sink__mode": "update", "sink__key": "item"}
        assert pipelines("sql", "--once", **source, sql=counts, name="counts", **into)["rows"] == 30
        every = {"sql": "SELECT id FROM orders", "name": "all", "sink__topic": f"{topic}-all"}
        assert pipelines("sql", "--once", **source, **every)["rows"] == 30
        lake = {"sql": "SELECT id, item FROM orders", "name": "lake", "sink__path": "lake", "sink__format": "delta"}
        assert pipelines("sql", "--once", **source, **lake)["rows"] == 30
    assert sorted(row["id"] for row in shown(lab, f"{topic}-all")) == list(range(60))
    assert sorted(row["n"] for row in shown(lab, f"{topic}-counts")) == [10, 10, 10, 20, 20, 20]
    from deltalake import DeltaTable

    assert sorted(DeltaTable(str(tmp_path / "lake")).to_pyarrow_table()["id"].to_pylist()) == list(range(60))


@slow
@long
def test_an_archive_of_a_server_named_by_an_option_holds_each_message_once(
    pipelines: ConnectPipelines, lab: Lab, topic: str
) -> None:
    lab.create(topic, 2)
    lab.fill(topic, orders(30))
    lab.create(f"{topic}-again", 2)
    for run in range(2):
        if run:
            lab.fill(topic, orders(30, start=30))
            shutil.rmtree(pipelines.folder / "lake" / "_penstock" / "checkpoint")
        done = pipelines.start(
            "archive", "--once", "-o", f"remote={pipelines.url}", "-o", f"topics={topic}", "-o", "path=lake"
        )
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout.splitlines()[-1])
        assert (report["rows"], report["batches"]) == (30, 1)
    report = pipelines("audit", expected__topic=topic, actual__path="lake")
    assert report["verdict"].startswith("PASS")
    assert pipelines("replay", path="lake", to=f"{topic}-again")["messages"] == 60
    report = pipelines("audit", expected__topic=topic, actual__topic=f"{topic}-again")
    assert (report["actual"], report["missing"], report["doubled"]) == (60, 0, 0)


@slow
@long
def test_insights_mirror_and_redrive_run(pipelines: ConnectPipelines, lab: Lab, topic: str, tmp_path: Path) -> None:
    lab.create(topic, 2)
    lab.fill(topic, orders(30))
    report = pipelines("insights", topics=topic, page="page.html")
    assert (report["messages"], (tmp_path / "page.html").is_file()) == (30, True)
    report = pipelines("mirror", "--once", topics=topic, to=pipelines.bootstrap, prefix="mirrored-")
    assert (report["rows"], len(lab.values(f"mirrored-{topic}"))) == (30, 30)
    for name in (f"{topic}-jobs", f"{topic}-dead"):
        subprocess.run([COMMAND, "queue", "create", name, "--bootstrap", pipelines.bootstrap], check=True)
    lab.fill(f"{topic}-dead", [Outgoing(value=b'{"amont": 1}'), Outgoing(value=b"other")])
    given = {"queue": f"{topic}-dead", "to": f"{topic}-jobs", "where": "value LIKE '%amont%'"}
    assert pipelines("redrive", "--dry-run", **given)["would_be_sent_back"] == 1
    report = pipelines("redrive", **given, fix__value="replace(value, 'amont', 'amount')")
    assert (report["sent_back"], report["deleted"], report["left"]) == (1, 1, 1)
    assert lab.values(f"{topic}-jobs") == [b'{"amount": 1}']


@slow
@long
def test_failures_are_explained(pipelines: ConnectPipelines, lab: Lab, topic: str, tmp_path: Path) -> None:
    lab.create(topic)
    lab.fill(topic, orders(3))
    command = ["sql", "--master", pipelines.url, "-o", f"sources.orders.topic={topic}"]
    done = pipelines.start(*command, "-o", "sql=SELECT amont FROM orders")
    assert (done.returncode, done.stderr.splitlines()[-1].startswith("Error: there is no column amont;")) == (1, True)
    corrupt = ["-o", "sources.orders.schema=item INT", "-o", f"sink.topic={topic}", "--once"]
    done = pipelines.start(*command, *corrupt, "-o", "spark={spark.driver.memory: 2g}")
    assert f"{pipelines.url} keeps its own spark.driver.memory" in done.stderr
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"Error: {topic}-0 offset 0 has a value that does not match the schema"), done.stderr
