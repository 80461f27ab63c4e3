"""Workers of Kafka Connect that copy a file to a topic and the topic to another file."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tests.clients.waiting import wait_until
from tests.ports import free_port

from .java_applications import JavaApplications
from .toolchains import Program

START_S = 240.0
STRINGS = "org.apache.kafka.connect.storage.StringConverter"


def write_properties(path: Path, properties: Mapping[str, object]) -> Path:
    """Writes a Java properties file; returns where it is."""
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return path


def source_config(name: str, file: Path, topic: str) -> dict[str, str]:
    """Returns the configuration of a connector that sends the lines of a file to a topic."""
    connector = {"name": name, "connector.class": "FileStreamSource", "tasks.max": "1"}
    return connector | {"file": str(file), "topic": topic}


def sink_config(name: str, file: Path, topic: str) -> dict[str, str]:
    """Returns the configuration of a connector that appends the records of a topic to a file."""
    connector = {"name": name, "connector.class": "FileStreamSink", "tasks.max": "1"}
    return connector | {"file": str(file), "topics": topic}


class Worker:
    """One worker of Kafka Connect, with its REST API on a port of 127.0.0.1."""

    def __init__(
        self, applications: JavaApplications, name: str, bootstrap: str, settings: Mapping[str, object]
    ) -> None:
        self._applications = applications
        self.address = f"127.0.0.1:{free_port()}"
        self._properties = write_properties(
            applications.folder / f"{name}.properties",
            {
                "bootstrap.servers": bootstrap,
                "key.converter": STRINGS,
                "value.converter": STRINGS,
                "plugin.discovery": "service_load",
                "listeners": f"http://{self.address}",
                "offset.flush.interval.ms": 200,
                "consumer.isolation.level": "read_committed",
                # So that a sink whose worker was killed goes on soon.
                "consumer.session.timeout.ms": 6000,
                **settings,
            },
        )
        self._program: Program | None = None

    def start(self, main: str, *connectors: Path) -> None:
        """Starts the worker and waits until it answers requests."""
        self._program = self._applications.start(
            f"org.apache.kafka.connect.cli.{main}", self._properties, *connectors
        )
        self._program.wait_line("Kafka Connect started", START_S)

    def kill(self) -> None:
        assert self._program is not None
        self._program.kill()

    def stop(self) -> None:
        assert self._program is not None
        self._program.stop()

    def put_connector(self, config: Mapping[str, str]) -> None:
        """Creates a connector. A worker that is in the middle of a rebalance answers 409 and is asked again."""
        body = json.dumps(config).encode()

        def accepted() -> bool:
            return self._request("PUT", f"/connectors/{config['name']}/config", body) is not None

        wait_until(accepted, f"connector {config['name']} is accepted", START_S)

    def task_worker(self, connector: str) -> str | None:
        """Returns the address of the worker that runs a connector's only task; None if it does not run now."""
        status = self._request("GET", f"/connectors/{connector}/status")
        running = [task for task in (status or {}).get("tasks", ()) if task["state"] == "RUNNING"]
        return running[0]["worker_id"] if running else None

    def _request(self, method: str, path: str, body: bytes | None = None) -> dict | None:
        """Returns the worker's answer; None while it is not found or a rebalance is in progress."""
        request = urllib.request.Request(f"http://{self.address}{path}", body, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=100) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in (404, 409):
                    return None
                raise AssertionError(f"{method} {path} is answered {error.code}: {error.read().decode()}") from error


class Lines:
    """Numbered lines in a file that a connector reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all: list[str] = []
        path.touch()

    def append(self, count: int) -> None:
        more = [f"line-{number}" for number in range(len(self.all), len(self.all) + count)]
        self.all += more
        with self.path.open("a") as file:
            file.write("".join(f"{line}\n" for line in more))
