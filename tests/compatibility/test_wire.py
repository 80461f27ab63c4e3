"""Every message that Penstock speaks, in every version, against the classes of the newest Kafka."""

from pathlib import Path

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.reference.kafka_errors import RETRIABLE
from penstock.wire.keys import ApiKey

from .toolchains import compile_java, java, java_classpath, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NEWEST = "4.4.0"
FIRST_OWN = 30_000
GOLDEN = Path(__file__).parents[1] / "unit" / "wire" / "golden"
OUR_OWN = {key.name.replace("_", "") for key in ApiKey if key >= FIRST_OWN}
"""Messages that Kafka does not have."""


def test_kafka_reads_and_writes_every_golden_message_as_it_is(tmp_path: Path) -> None:
    classpath = compile_java("ReadGolden", java_classpath(f"org.apache.kafka:kafka-clients:{NEWEST}"), tmp_path)
    files = sorted(str(path) for path in GOLDEN.glob("*.txt") if path.stem.upper() not in OUR_OWN)
    lines = run(java(classpath, "ReadGolden", *files), tmp_path).splitlines()
    assert [line for line in lines if line.startswith(("DIFFERS", "UNKNOWN"))] == []
    assert lines[-1] == f"COMPARED {sum(len(Path(file).read_text().splitlines()) for file in files)}"


def test_the_error_codes_are_those_of_kafka(tmp_path: Path) -> None:
    classpath = compile_java("ListErrors", java_classpath(f"org.apache.kafka:kafka-clients:{NEWEST}"), tmp_path)
    lines = [line.split() for line in run(java(classpath, "ListErrors"), tmp_path).splitlines()]
    assert {int(number): name for number, name, _ in lines} == {int(code): code.name for code in ErrorCode}
    assert {name for _, name, retriable in lines if retriable == "true"} == {code.name for code in RETRIABLE}
