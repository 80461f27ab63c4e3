"""Every example of README.md and docs/ is run as it stands there, one after the other, on a broker for each page.

What another test runs, or cannot be run here, is listed below with the reason.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.brokers import BrokerProcess
from tests.clients.conftest import NO_KCAT
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.fork_server import FORKING_PYTHON, forking_environment

from .examples import PAGES, Example, examples_of

STARTS: Final = re.compile(r"(\.venv/bin/)?penstock serve\b|pip install\b")
"""Lines that start what runs already."""
ENDLESS: Final = re.compile(r"\.(subscribe|work)\((?!.*(idle_timeout_s|limit)=)", re.DOTALL)

DELIVERY: Final = "tests/clients/test_api_examples.py runs it"
QUEUES: Final = "tests/clients/test_queue_examples.py runs it"
SPARK: Final = "tests/pages/test_spark_examples.py runs it"
HOSTS: Final = "it names other hosts and folders; its options are checked"
SERVER: Final = "tests/cli/test_pipeline_server.py runs such commands"
DECLARATIVE: Final = "tests/spark/test_declarative.py runs it"
TLS: Final = "tests/cli/test_security.py runs such commands on a broker with TLS"
SASL: Final = "tests/cli/test_user.py runs such commands on a broker with SASL"
OUTPUT: Final = "it is what a program prints, or a drawing"
FILE: Final = "it is a file"
NOT_HERE: Final[dict[str, dict[str, str]]] = {
    "README.md": {
        "make demo": "make and CI run it",
        "penstock dev --brokers 3": "tests/cli/test_dev.py runs it",
        "penstock pipeline run sql": SPARK,
    },
    "docs/architecture.md": {"cli ": OUTPUT, "sequenceDiagram": OUTPUT, "flowchart": OUTPUT},
    "docs/delivery.md": {"": DELIVERY},
    "docs/operations.md": {
        "penstock serve": HOSTS,
        "# penstock.toml": FILE,
        "penstock dev": "tests/cli/test_dev.py runs it",
        "penstock cluster migrate-store": HOSTS,
    },
    "docs/pipelines.md": {
        "": SPARK,
        "Error: totals.yaml": OUTPUT,
        "penstock pipeline server start": SERVER,
        "bootstrap:": "tests/spark/test_secure.py runs a pipeline with such a mapping",
    },
    "docs/queues.md": {
        "import penstock": QUEUES,
        'mq.queue("jobs")': QUEUES,
        'for job in mq.queue("jobs")': QUEUES,
        "async with penstock": QUEUES,
        'mq.create_queue("': QUEUES,
        "broker_url": "tests/clients/test_celery.py runs workers with these settings",
    },
    "docs/schemas.md": {
        "penstock schema export": HOSTS,
        "keys:": "tests/registry/test_access.py starts a broker with such a file",
    },
    "docs/security.md": {
        "penstock serve": HOSTS,
        "# penstock.toml": FILE,
        "penstock topic create": TLS,
        "penstock user create": SASL,
        "penstock token create": "tests/cli/test_token.py runs such commands on a broker with SASL",
        "penstock security key": "tests/cli/test_access_key.py runs such commands",
        "penstock context create": "tests/cli/test_context.py runs such commands",
        "# sasl.toml": FILE,
        "# client.properties": FILE,
        "# job.properties": FILE,
        "# store.properties": "tests/coordination/test_store_security.py starts a broker with such a file",
        "# acl.toml": FILE,
        "# admin.properties": FILE,
        "penstock acl add": "tests/cli/test_acl.py runs such commands on a broker with an authorizer",
        "mq = penstock.connect": TLS,
        "penstock audit": "tests/clients/test_security_audit.py runs it",
        "events = spark.read.json": "tests/spark/test_audit_query.py runs this query",
    },
    "docs/spark.md": {
        "": SPARK,
        "secure = {": "tests/spark/test_secure.py reads and writes with such options",
        "penstock pipeline server start": SERVER,
        "spark = penstock.spark.session(remote=": "tests/spark/test_connect.py runs sessions like this one",
        "FROM apache/spark": FILE,
        "spark-submit --master k8s://": "tests/spark/test_kubernetes_submit.py runs it",
        "# transformations/orders.py": DECLARATIVE,
        "# spark-pipeline.yml": DECLARATIVE,
        'rows = spark.readStream.format("kafka")': "tests/spark/test_connector_triggers.py runs such streams",
    },
    "docs/sqs.md": {"# penstock serve": FILE},
}
"""By page and beginning of an example: why it is not run here."""


def reason(example: Example) -> str | None:
    """Why an example is not run here; the longest beginning decides."""
    known = NOT_HERE.get(example.page, {})
    fitting = [beginning for beginning in known if example.name.startswith(beginning)]
    return known[max(fitting, key=len)] if fitting else None


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, data_dir=tmp_path / "penstock-data").start()
    yield process
    process.finish()


def addressed(text: str, broker: BrokerProcess) -> str:
    """The example with the addresses of a broker that listens elsewhere."""
    text = re.sub(r"(localhost|127\.0\.0\.1):9092", broker.kafka, text)
    return re.sub(r"(localhost|127\.0\.0\.1):9324", broker.http, text)


def environment(broker: BrokerProcess) -> dict[str, str]:
    found = os.environ | {"PENSTOCK_BOOTSTRAP": broker.kafka, "PENSTOCK_ENDPOINT": f"http://{broker.http}"}
    return found | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}


def forking(broker: BrokerProcess) -> tuple[dict[str, str], tuple[int, ...]]:
    """The environment of an example whose commands are forked, and the descriptors that it inherits."""
    folder = broker.folder / "bin"
    folder.mkdir(exist_ok=True)
    added, fd = forking_environment(folder)
    return {**environment(broker), **added}, (fd,)


def run_shell(example: Example, broker: BrokerProcess) -> None:
    lines = [line for line in example.text.splitlines() if not STARTS.match(line)]
    shown = example.text.startswith("$ ")
    variables, inherited = forking(broker)
    script = lines[0].removeprefix("$ ") if shown else "\n".join(lines)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", addressed(script, broker)],
        cwd=broker.folder,
        env=variables,
        pass_fds=inherited,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
    )
    if shown:
        assert done.stdout == "\n".join([*lines[1:], ""]), example
    else:
        assert done.returncode == 0, f"{example} ended with {done.returncode}:\n{done.stdout}"


def run_python(example: Example, broker: BrokerProcess) -> None:
    """Runs it to its end; one without an end until it has printed something."""
    output = broker.folder / "output.txt"
    script = broker.folder / "example.py"
    script.write_text(addressed(example.text, broker))
    variables, inherited = forking(broker)
    with output.open("w") as out:
        process = subprocess.Popen(
            [*FORKING_PYTHON, str(script)],
            cwd=broker.folder,
            env=variables | {"PYTHONUNBUFFERED": "1"},
            pass_fds=inherited,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        if ENDLESS.search(example.text):
            wait_until(lambda: output.read_text() or process.poll() is not None, f"{example} prints something")
            assert process.poll() is None, output.read_text()
            assert "Traceback" not in output.read_text()
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_S)
        else:
            assert process.wait(2 * PATIENCE_S) == 0, f"{example}:\n{output.read_text()}"
    finally:
        process.terminate()  # which the client passes on
        process.wait(PATIENCE_S)


def _marks(page: str) -> list[pytest.MarkDecorator]:
    return [NO_KCAT] if any("kcat -b" in example.text for example in examples_of(page)) else []


RUN_HERE: Final = [
    pytest.param(page, marks=_marks(page))
    for page in PAGES
    if any(reason(example) is None for example in examples_of(page))
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", RUN_HERE)
def test_the_examples_of_a_page_run(page: str, broker: BrokerProcess) -> None:
    for example in examples_of(page):
        if reason(example) is None:
            assert example.language in ("", "sh", "python"), f"{example}: how is it run?"
            (run_python if example.language == "python" else run_shell)(example, broker)


def test_no_reason_is_left_of_an_example_that_is_gone() -> None:
    for page, beginnings in NOT_HERE.items():
        names = [example.name for example in examples_of(page)]
        assert [each for each in beginnings if not any(name.startswith(each) for name in names)] == [], page


COMMANDS: Final = [
    line
    for page in PAGES
    for example in examples_of(page)
    if reason(example) == HOSTS
    for line in example.text.replace("\\\n", " ").splitlines()
]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_of_a_command_for_other_hosts_exist(command: str, tmp_path: Path) -> None:
    """With --help, options that do not exist are refused, and nothing is done."""
    variables, fd = forking_environment(tmp_path)
    done = subprocess.run(
        ["bash", "-c", f"{command} --help"],
        env=variables,
        pass_fds=[fd],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
