"""`penstock pipeline server` and `penstock pipeline shell`."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.foundation.private_folder import private_folder
from penstock.spark import warm_server
from penstock.spark.errors import SparkFailed
from tests.ports import free_port

from .cli_runner import Direct, ServeProcess

COMMAND = str(Path(sys.executable).with_name("penstock"))
SPARK_S = 600


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keeps the file of the server away from the user's own server."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    return tmp_path / "cache"


def penstock(*arguments: str, stdin: str = "", code: int = 0) -> str:
    done = subprocess.run(
        [COMMAND, *arguments], input=stdin, capture_output=True, text=True, timeout=SPARK_S, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def server(cache: Path) -> Iterator[str]:
    """The address of a server that has been started by the command."""
    command = ["pipeline", "server", "start", "--master", "local[2]", "--port", str(free_port())]
    started = json.loads(penstock(*command, "-s", "spark.driver.memory=1g", "--json"))
    yield started["address"]
    assert json.loads(penstock("pipeline", "server", "stop", "--json")) == {"ok": True, "stopped": True}
    assert "no server is running" in penstock("pipeline", "server", "status", code=1)


@pytest.mark.slow  # a Spark of its own
@pytest.mark.timeout(2400)
def test_pipelines_run_on_a_server_that_is_kept_warm(
    server: str, broker: ServeProcess, direct: Direct, fresh: str, tmp_path: Path
) -> None:
    topic = direct.create(fresh, partitions=2)
    direct.publish(topic, *(json.dumps({"id": number}).encode() for number in range(30)))
    status = json.loads(penstock("pipeline", "server", "status", "--json"))
    assert (status["address"], status["master"]) == (server, "local[2]")
    common = ["--bootstrap", broker.bootstrap, "--master", server, "--json"]
    sql = ["-o", f"sources.orders.topic={topic}", "-o", "sql=SELECT sum(id) AS total FROM orders"]
    for _ in range(2):
        began_s = time.monotonic()
        report = json.loads(penstock("pipeline", "run", "sql", *sql, *common).splitlines()[-1])
        sys.stderr.write(f"a tiny pipeline on a warm server took {time.monotonic() - began_s:.1f} s\n")
        assert report["tables"]["result"] == [{"total": sum(range(30))}]
    archive = ["-o", f"topics={topic}", "-o", f"path={tmp_path}/lake", "--once"]
    report = json.loads(penstock("pipeline", "run", "archive", *archive, *common).splitlines()[-1])
    assert (report["rows"], report["ok"]) == (30, True)
    lines = f'topic("{topic}").count()\nspark.sql("SELECT max(offset) AS last FROM `{topic}`").collect()\n'
    shown = penstock("pipeline", "shell", topic, "--bootstrap", broker.bootstrap, "--master", server, stdin=lines)
    assert "30" in shown
    assert "[Row(last=29)]" in shown
    refused = penstock("pipeline", "server", "start", "--port", str(free_port()), "--json", code=1)
    assert refused == ""


def test_a_port_that_is_taken_is_refused(cache: Path, broker: ServeProcess) -> None:
    port = int(broker.bootstrap.rpartition(":")[2])
    with pytest.raises(SparkFailed, match=f"port {port} cannot be used: .*; choose another one with --port"):
        warm_server.start("local[2]", port=port)


def test_only_the_address_of_the_server_gets_its_token(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = {
        "pid": os.getpid(),
        "port": 15002,
        "token": "secret",
        "master": "local[*]",
        "log": "",
        "started_at_ms": 0,
    }
    (private_folder("spark-server") / "server.json").write_text(json.dumps(server))
    assert warm_server.with_token("sc://localhost") == "sc://localhost"  # the process is not such a server
    monkeypatch.setattr(warm_server, "_MAIN_CLASS", "python")
    assert warm_server.with_token("sc://localhost") == "sc://localhost:15002/;token=secret"
    assert warm_server.with_token("sc://localhost:15002/") == "sc://localhost:15002/;token=secret"
    for other in ("sc://localhost:15003", "sc://other", "sc://localhost/;token=mine"):
        assert warm_server.with_token(other) == other


def test_the_status_of_no_server(cache: Path) -> None:
    assert "no server is running; start one with" in penstock("pipeline", "server", "status", code=1)
    assert json.loads(penstock("pipeline", "server", "stop", "--json")) == {"ok": True, "stopped": False}
