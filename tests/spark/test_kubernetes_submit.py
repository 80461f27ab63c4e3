"""The `spark-submit --master k8s://…` of docs/spark.md, up to the API call that creates the driver's pod."""

import json
import os
import re
import shlex
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from .conftest import ENVIRONMENT
from .connect_server import SPARK_HOME

DOCS = Path(__file__).parent.parent.parent / "docs" / "spark.md"
SUBMIT_S_MAX = 500.0
_COMMAND = re.compile(r"^spark-submit --master k8s://.*?(?<!\\)$", re.MULTILINE | re.DOTALL)


class ApiServer(ThreadingHTTPServer):
    """Records the resources that are created, and answers as Kubernetes does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Api)
        self.created: dict[str, list[dict[str, Any]]] = {}
        self.paths: list[str] = []


class _Api(BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        self._answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})

    def do_POST(self) -> None:
        self._create(201)

    def do_PATCH(self) -> None:
        self._create(200)

    def _create(self, code: int) -> None:
        found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.created.setdefault(found["kind"], []).append(found)
        self.server.paths.append(self.path.partition("?")[0])
        found["metadata"] |= {"uid": "0f0e", "creationTimestamp": "2026-01-31T12:00:00Z", "resourceVersion": "1"}
        self._answer(code, found)

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.slow
@pytest.mark.timeout(SUBMIT_S_MAX + 60)
def test_the_documented_command_creates_a_driver_with_the_package(api: ApiServer, tmp_path: Path) -> None:
    documented = _COMMAND.search(DOCS.read_text())
    assert documented is not None
    words = shlex.split(documented[0].replace("\\\n", " "))
    words[0] = str(SPARK_HOME / "bin" / "spark-submit")
    words[2] = f"k8s://http://127.0.0.1:{api.server_port}"
    kube = {"KUBECONFIG": str(tmp_path / "none"), "SPARK_HOME": str(SPARK_HOME)}
    done = subprocess.run(
        words,
        env=os.environ | ENVIRONMENT | kube,
        capture_output=True,
        text=True,
        timeout=SUBMIT_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (pod,) = api.created["Pod"]
    assert api.paths[0] == "/api/v1/namespaces/penstock/pods"
    assert pod["spec"]["serviceAccountName"] == "spark"
    (driver,) = pod["spec"]["containers"]
    assert driver["image"] == "registry.example.org/penstock-spark:1"
    assert driver["args"][0] == "driver"
    assert "local:///opt/jobs/totals.py" in driver["args"]
    environment = {each["name"]: each.get("value") for each in driver["env"]}
    assert environment["PYSPARK_PYTHON"] == "/opt/penstock/bin/python"
    assert environment["PENSTOCK_BOOTSTRAP"] == "penstock.penstock:9092"
    (properties,) = [
        each["data"]["spark.properties"]
        for each in api.created["ConfigMap"]
        if "spark.properties" in each.get("data", {})
    ]
    assert "spark.kubernetes.container.image=registry.example.org/penstock-spark\\:1" in properties
    assert "spark.executor.instances=3" in properties
