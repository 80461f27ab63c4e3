"""Karapace takes the registry over from the brokers and returns it: all on one `_schemas` topic.

KARAPACE_PYTHON names a Python in which Karapace is installed; it is not on the Python package index.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import BrokerProcess
from tests.cli.cli_runner import Cli
from tests.clients.waiting import wait_until
from tests.ports import free_port
from tests.registry.rest_client import Answer, RestClient, record

START_S = 300.0
STOP_S = 60.0
ITEM = 'syntax = "proto3";\npackage shop;\n\nmessage Item {\n  string name = 1;\n}\n'
JSON_ORDER = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
CUSTOMER = record("name:string", name="Customer")
INVOICE = '{"type":"record","name":"Invoice","fields":[{"name":"customer","type":"Customer"}]}'
REFERENCES = [{"name": "Customer", "subject": "customer", "version": 1}]


def karapace_python() -> str:
    """The Python that has Karapace; skips the test if there is none."""
    python = os.environ.get("KARAPACE_PYTHON") or shutil.which("python")
    if python is None or subprocess.run([python, "-c", "import karapace.version"], capture_output=True).returncode:
        pytest.skip("Karapace is not installed: set KARAPACE_PYTHON to the Python of an environment that has it")
    return python


class Karapace(RestClient):
    """Karapace's registry, which has no path in front of that of its API."""

    def __init__(self, port: int) -> None:
        super().__init__(f"127.0.0.1:{port}")
        self.url = f"http://127.0.0.1:{port}"


@contextmanager
def karapace_on(broker: BrokerProcess, folder: Path) -> Iterator[Karapace]:
    """Runs Karapace on the broker's `_schemas` topic, until it has read all of it and may write."""
    port = free_port()
    (folder / "runtime").mkdir(exist_ok=True)
    settings = {
        "KARAPACE_BOOTSTRAP_URI": broker.kafka,
        "KARAPACE_HOST": "127.0.0.1",
        "KARAPACE_PORT": str(port),
        "KARAPACE_ADVERTISED_HOSTNAME": "127.0.0.1",
        "KARAPACE_ADVERTISED_PORT": str(port),
        "KARAPACE_LOG_LEVEL": "WARNING",
    }
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"} | settings
    log = folder / "karapace.log"
    with (
        log.open("ab") as out,
        subprocess.Popen(
            [karapace_python(), "-m", "karapace"], cwd=folder, env=environment, stdout=out, stderr=out
        ) as process,
    ):
        try:
            rest = Karapace(port)

            def is_ready() -> bool:
                assert process.poll() is None, log.read_text()[-3000:]
                try:
                    return rest.get("/subjects").status == 200 and bool(
                        rest.get("/master_available").body.get("master_available")
                    )
                except OSError:
                    return False

            wait_until(is_ready, "Karapace serves the schemas", START_S, 0.2)
            yield rest
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def ok(answer: Answer) -> Any:
    assert answer.status == 200, answer
    return answer.body


def registered(rest: RestClient, subject: str, schema: str, kind: str = "AVRO", references: object = ()) -> int:
    return int(ok(rest.register(subject, schema, kind, references=references))["id"])


def contents(rest: RestClient) -> dict[str, dict[int, tuple[int, str, Any]]]:
    """Id, type and schema of each version of each subject."""
    found: dict[str, dict[int, tuple[int, str, Any]]] = {}
    for subject in sorted(ok(rest.get("/subjects"))):
        found[subject] = {}
        for version in ok(rest.get(f"/subjects/{subject}/versions")):
            body = ok(rest.get(f"/subjects/{subject}/versions/{version}"))
            by_id = ok(rest.get(f"/schemas/ids/{body['id']}"))
            kind = body.get("schemaType", "AVRO")
            assert plain(by_id["schema"], kind) == plain(body["schema"], kind)
            references = sorted(tuple(sorted(each.items())) for each in body.get("references", ()))
            found[subject][version] = (body["id"], kind, (plain(body["schema"], kind), references))
    return found


def plain(text: str, kind: str) -> Any:
    """A schema in a form in which white space does not count."""
    return text.split() if kind == "PROTOBUF" else json.loads(text)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_karapace_takes_the_registry_over_and_returns_it(tmp_path: Path) -> None:
    karapace_python()
    broker = BrokerProcess(tmp_path).start()
    try:
        ours, cli = RestClient(broker.http), Cli(broker.kafka)
        first = registered(ours, "orders-value", record("id:long"))
        registered(ours, "orders-value", record("id:long", 'item:string="tea"'))
        assert registered(ours, "copies-value", record("id:long")) == first
        registered(ours, "json-value", json.dumps(JSON_ORDER), "JSON")
        registered(ours, "items-value", ITEM, "PROTOBUF")
        registered(ours, "customer", CUSTOMER)
        registered(ours, "invoices-value", INVOICE, references=REFERENCES)
        ok(ours.put("/config/orders-value", {"compatibility": "FULL"}))
        ok(ours.put("/config", {"compatibility": "FORWARD"}))
        ok(ours.put("/mode/json-value", {"mode": "READONLY"}))
        registered(ours, "soft-value", record("s:long"))
        ok(ours.delete("/subjects/soft-value"))
        last = registered(ours, "gone-value", record("g:long"))
        ok(ours.delete("/subjects/gone-value"))
        ok(ours.delete("/subjects/gone-value?permanent=true"))
        before = contents(ours)
        cli.ok("schema", "disown", "--yes")
        with karapace_on(broker, tmp_path) as theirs:
            assert contents(theirs) == before
            assert ok(theirs.get("/config"))["compatibilityLevel"] == "FORWARD"
            assert ok(theirs.get("/config/orders-value"))["compatibilityLevel"] == "FULL"
            assert theirs.register("orders-value", record("id:long", "price:double")).status == 409
            assert "soft-value" in ok(theirs.get("/subjects?deleted=true"))
            ok(theirs.put("/config/orders-value", {"compatibility": "NONE"}))
            added = registered(theirs, "orders-value", record("id:string"))
            assert added not in {each[0] for versions in before.values() for each in versions.values()}
            assert registered(theirs, "theirs-value", record("t:long")) > added
            registered(theirs, "theirs-json", json.dumps(JSON_ORDER | {"title": "theirs"}), "JSON")
            registered(theirs, "theirs-items", ITEM.replace("name = 1", "name = 7"), "PROTOBUF")
            registered(theirs, "theirs-invoices", INVOICE.replace("Invoice", "Bill"), references=REFERENCES)
            assert theirs.delete("/subjects/customer/versions/1").status == 422, "others refer to it"
            ok(theirs.delete("/subjects/copies-value"))
            after = contents(theirs)
            largest = max(each[0] for versions in after.values() for each in versions.values())
        assert last > 0
        cli.ok("schema", "own", "--yes")
        assert contents(ours) == after
        assert ok(ours.get("/config/orders-value"))["compatibilityLevel"] == "NONE"
        assert ok(ours.get("/mode/json-value"))["mode"] == "READONLY"
        assert ours.delete("/subjects/customer").code == 42206
        assert "copies-value" not in after
        assert "copies-value" in ok(ours.get("/subjects?deleted=true"))
        assert registered(ours, "ours-again", record("o:long")) > max(largest, last)
    finally:
        broker.finish()
