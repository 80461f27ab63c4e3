"""Amazon's JMS library for SQS: acknowledgement modes, properties, a listener and a FIFO queue."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Target
from .java_applications import JavaApplications, compile_applications, words_after
from .toolchains import Program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ARTIFACTS = ["com.amazonaws:amazon-sqs-java-messaging-lib:2.1.4"]


@pytest.fixture(scope="module")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile_applications(ARTIFACTS, ("JmsQueues",), tmp_path_factory.mktemp("classes"))


@pytest.fixture
def applications(classpath: str, tmp_path: Path) -> Iterator[JavaApplications]:
    applications = JavaApplications(classpath, tmp_path)
    yield applications
    applications.end()


def run_jms(applications: JavaApplications, target: Target, *arguments: str) -> Program:
    """Runs the program to its end. It must leave its queue empty."""
    program = applications.start("JmsQueues", f"http://{target.http}", *arguments)
    program.wait()
    assert program.lines[-1] == "left 0"
    return program


@pytest.mark.parametrize("mode", ["client", "unordered"])
def test_messages_that_are_not_acknowledged_come_again(
    target: Target, applications: JavaApplications, mode: str
) -> None:
    program = run_jms(applications, target, "acknowledge", f"jms-{mode}", mode)
    received = [text for (text,) in words_after(program, "received")]
    assert sorted(received) == [f"message-{number}" for number in range(6)]
    # The third was acknowledged: with all before it in one mode, alone in the other.
    acknowledged = received[:3] if mode == "client" else received[2:3]
    again = words_after(program, "again")
    assert sorted(again) == sorted([text, "true", "2"] for text in received if text not in acknowledged)
    assert words_after(program, "then") == [["null"]]


def test_properties_and_kinds_of_messages_arrive_as_they_were_sent(
    target: Target, applications: JavaApplications
) -> None:
    program = run_jms(applications, target, "properties", "jms-properties")
    kinds = {"boolean", "double", "int", "long", "short", "string"}
    found = {name: (kind, same) for name, kind, same in words_after(program, "property")}
    assert {name: found.get(name) for name in kinds} == {
        name: ("Integer" if name == "int" else name.capitalize(), "true") for name in kinds
    }
    # The library keeps fields of JMS in properties of its own.
    own = {f"JMS_SQS{name}" for name in ("MessageType", "CorrelationID", "ReplyToQueueName", "ReplyToQueueURL")}
    assert set(found) - kinds == {"JMSXDeliveryCount"} | own
    assert words_after(program, "text") == [["true"]]
    assert words_after(program, "id") == [["true"]]
    assert words_after(program, "correlation") == [["correlation-1"]]
    assert words_after(program, "reply") == [["jms-properties"]]
    assert words_after(program, "bytes") == [["true"]]
    assert words_after(program, "object") == [["[1,", "2,", "3]"]]


def test_a_listener_hears_every_message_and_a_failed_one_again(
    target: Target, applications: JavaApplications
) -> None:
    program = run_jms(applications, target, "listen", "jms-heard")
    expected = [[f"message-{number}", "1"] for number in range(20)]
    assert sorted(words_after(program, "heard")) == sorted([*expected, ["message-13", "2"]])


def test_a_fifo_queue_keeps_the_order_of_each_group_and_drops_duplicates(
    target: Target, applications: JavaApplications
) -> None:
    program = run_jms(applications, target, "fifo", "jms-ordered.fifo")
    received = words_after(program, "received")
    for group in range(3):
        messages = [entry for entry in received if entry[1] == f"group-{group}"]
        assert [entry[0] for entry in messages] == [f"message-{number}" for number in range(group, 12, 3)]
        assert [entry[2] for entry in messages] == [f"id-{number}" for number in range(group, 12, 3)]
        sequence = [int(entry[3]) for entry in messages]
        assert sequence == sorted(set(sequence))
    assert len(received) == 12
    assert words_after(program, "then") == [["null"]]
