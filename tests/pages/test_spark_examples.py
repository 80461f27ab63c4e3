"""The examples of README.md, docs/spark.md and docs/pipelines.md that need Spark, run as they stand there."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.clients.waiting import PATIENCE_S

from .examples import Example, examples_of
from .test_examples import SPARK, STARTS, addressed, environment, reason

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ORDERS = "\n".join(
    json.dumps({"id": number, "item": "tea", "price": 2.5, "at": f"2026-01-31T12:{number % 60:02}:00Z"})
    for number in range(100)
)
PREPARED = f"""
penstock topic create orders --partitions 2
penstock publish orders <<'END'
{ORDERS}
END
"""
LETTERS = """
penstock subscribe orders --group billing --max 10 > /dev/null
penstock queue create jobs-dead
penstock queue create jobs --visibility 1s --dead-letter jobs-dead --max-receives 1
penstock queue send jobs '{"amont": 7}' --attribute tenant=eu
penstock queue receive jobs
penstock queue receive jobs --wait 3s
"""
CONTINUOUS_S = 60


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, data_dir=tmp_path / "penstock-data").start()
    yield process
    process.finish()


def run(command: list[str], broker: BrokerProcess, what: object) -> str:
    done = subprocess.run(
        command,
        cwd=broker.folder,
        env=environment(broker),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=10 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{what} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def shell(script: str, broker: BrokerProcess, what: object) -> str:
    return run(["bash", "-euo", "pipefail", "-c", addressed(script, broker)], broker, what)


def commands(example: Example) -> str:
    """The script of an example; what goes on until it is interrupted is interrupted."""
    lines = [line for line in example.text.splitlines() if not STARTS.match(line)]
    interrupted = f"timeout --signal INT --kill-after {CONTINUOUS_S} {CONTINUOUS_S} {{}} || test $? -eq 124"
    return "\n".join(interrupted.format(line) if "--continuous" in line else line for line in lines)


def test_the_pipelines_of_the_readme_run(broker: BrokerProcess) -> None:
    shell(PREPARED, broker, "orders")
    (example,) = [each for each in examples_of("README.md") if reason(each) == SPARK]
    assert "PASS" in shell(commands(example), broker, example)


def test_the_page_of_spark_runs_from_top_to_bottom(broker: BrokerProcess) -> None:
    """As one session, as a reader has it: later examples use what earlier ones have made."""
    parts = ["import subprocess"]
    for example in examples_of("docs/spark.md"):
        if reason(example) != SPARK:
            continue
        if example.language == "python":
            parts.append(addressed(example.text, broker))
        else:
            command = ["bash", "-euo", "pipefail", "-c", commands(example)]
            parts.append(f"subprocess.run({command!r}, check=True)")
    printed = run([sys.executable, "-c", "\n".join(parts)], broker, "docs/spark.md")
    assert '{"id": 3}' in printed
    assert "[tenant" in printed
    assert re.search(r"\|\s*rum\|\s*\d\|", printed)  # typed values
    assert (broker.folder / "lake" / "orders").is_dir()
    loud = shell("penstock subscribe orders-loud --from earliest --json", broker, "what was written")
    assert sorted(re.findall(r'ID\\*": (\d)', loud)) == ["1", "2", "3", "4"]
    assert len(shell("penstock subscribe totals --from earliest --json", broker, "batches").splitlines()) == 4


def test_the_page_of_pipelines_runs_from_top_to_bottom(broker: BrokerProcess) -> None:
    shell(PREPARED + LETTERS, broker, "orders and dead letters")
    examples = [each for each in examples_of("docs/pipelines.md") if reason(each) == SPARK]
    for example in examples:
        if example.language == "yaml":
            (broker.folder / "totals.yaml").write_text(addressed(example.text, broker))
    for example in examples:
        if example.language == "yaml":
            continue
        script, has_output, output = commands(example).partition("\n…\n")
        said = shell(script, broker, example)
        if has_output:
            assert counted(output.strip()) in counted(said)


def counted(text: str) -> str:
    """Text without the number of messages, which is another one here."""
    return re.sub(r"\d+ messages", "N messages", text)
