"""Kafka's Java client: an idempotent producer, consumer groups, transactions and share groups."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.clients.waiting import wait_until

from .conftest import Target
from .java_applications import (
    JavaApplications,
    compile_applications,
    create_topic,
    kafka_artifacts,
    read_values,
    words_after,
)
from .toolchains import Program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAMS = ("SendNumbers", "ReadGroup", "MoveNumbers", "ShareNumbers")
PARTITIONS = 4
COUNT = 3000
WAIT_S = 240.0


@pytest.fixture(scope="module")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile_applications(kafka_artifacts("kafka-clients"), PROGRAMS, tmp_path_factory.mktemp("classes"))


@pytest.fixture
def applications(classpath: str, tmp_path: Path) -> Iterator[JavaApplications]:
    applications = JavaApplications(classpath, tmp_path)
    yield applications
    applications.end()


def assert_each_offset_once(entries: list[list[str]], count: int) -> None:
    """Asserts that partition, offset and value of `count` records are there once, and that offsets have no gaps."""
    offsets = defaultdict(list)
    for partition, offset, _ in entries:
        offsets[partition].append(int(offset))
    assert {partition: sorted(found) for partition, found in offsets.items()} == {
        partition: list(range(len(found))) for partition, found in offsets.items()
    }
    assert sorted(int(value) for _, _, value in entries) == list(range(count))


def test_an_idempotent_producer_s_records_are_stored_once(target: Target, applications: JavaApplications) -> None:
    topic = create_topic(target, "java-sent", PARTITIONS)
    sender = applications.start("SendNumbers", target.bootstrap, topic, 0, COUNT, 0)
    sender.wait()
    assert_each_offset_once(words_after(sender, "sent"), COUNT)
    stored = read_values(target.bootstrap, topic, PARTITIONS)
    assert sorted(map(int, stored)) == list(range(COUNT))


def assigned_count(reader: Program) -> int:
    """How many partitions a member had after its last rebalance; 0 before its first."""
    found = words_after(reader, "assigned")
    return int(found[-1][0]) if found else 0


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_group_reads_every_record_once_though_a_member_closes(
    target: Target, applications: JavaApplications, protocol: str
) -> None:
    topic = create_topic(target, f"java-read-{protocol}", PARTITIONS)
    group = f"{topic}-group"
    arguments = (target.bootstrap, topic, group, protocol)
    leaving = applications.start("ReadGroup", *arguments)
    leaving.wait_line(f"assigned {PARTITIONS} ")
    staying = applications.start("ReadGroup", *arguments)
    staying.wait_line("assigned 2 ")
    wait_until(lambda: assigned_count(leaving) == 2, "both members have two partitions")
    sender = applications.start("SendNumbers", target.bootstrap, topic, 0, COUNT, 10)
    wait_until(lambda: len(words_after(leaving, "read")) > 200, "the first member reads")
    leaving.stop()
    leaving_read = words_after(leaving, "read")
    assert leaving.lines[-1] == "CLOSED"
    assert len(leaving_read) < COUNT / 2
    staying.wait_line(f"assigned {PARTITIONS} ")
    sender.wait()

    def all_read() -> bool:
        return len(leaving_read) + len(words_after(staying, "read")) >= COUNT

    wait_until(all_read, "everything is read", WAIT_S)
    staying.stop()
    assert staying.lines[-1] == "CLOSED"
    entries = leaving_read + words_after(staying, "read")
    assert_each_offset_once(entries, COUNT)
    assert sorted(entries) == sorted(words_after(sender, "sent"))


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_transactional_program_that_is_killed_moves_every_record_once(
    target: Target, applications: JavaApplications, protocol: str
) -> None:
    source = create_topic(target, f"java-move-from-{protocol}", PARTITIONS)
    result = create_topic(target, f"java-move-to-{protocol}", PARTITIONS)
    arguments = (target.bootstrap, source, result, f"java-move-{protocol}", protocol)
    applications.run("SendNumbers", target.bootstrap, source, 0, COUNT, 0)
    aborted = committed = 0
    for halt_after in (0, 5, 17):
        mover = applications.start("MoveNumbers", *arguments, halt_after)
        aborted += int(mover.wait_line("HALFWAY").split()[1])
        mover.kill()
        committed += sum(int(count) for (count,) in words_after(mover, "committed"))
    mover = applications.start("MoveNumbers", *arguments, -1)

    def all_committed() -> bool:
        return committed + sum(int(count) for (count,) in words_after(mover, "committed")) >= COUNT

    wait_until(all_committed, "everything is moved", WAIT_S)
    mover.stop()
    moved = read_values(target.bootstrap, result, PARTITIONS)
    assert sorted(moved) == sorted(f"moved-{number}" for number in range(COUNT))
    written = read_values(target.bootstrap, result, PARTITIONS, "read_uncommitted")
    assert len(written) == COUNT + aborted


def begin_at_earliest(target: Target, group: str) -> None:
    """Makes a share group read its topics from their beginning; it begins at their end otherwise."""
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


def numbers_after(word: str, *programs: Program) -> list[int]:
    return [int(words[0]) for program in programs for words in words_after(program, word)]


def test_a_share_group_acknowledges_every_record_though_a_member_is_killed(
    target: Target, applications: JavaApplications
) -> None:
    topic = create_topic(target, "java-shared", PARTITIONS)
    group = "java-shared-group"
    begin_at_earliest(target, group)
    arguments = (target.bootstrap, topic, group)
    dying = applications.start("ShareNumbers", *arguments, 20)
    applications.run("SendNumbers", target.bootstrap, topic, 0, 200, 0)
    wait_until(lambda: numbers_after("accepted", dying), "the first member gets records", WAIT_S)
    staying = applications.start("ShareNumbers", *arguments, -1)
    applications.run("SendNumbers", target.bootstrap, topic, 200, COUNT - 200, 0)
    dying.wait_line("HOLDING")
    held = numbers_after("hold", dying)
    assert held
    dying.kill()
    sent = set(range(COUNT))
    rejected = {number for number in sent if number % 10 == 0}

    def all_acknowledged() -> bool:
        return (
            set(numbers_after("accepted", dying, staying)) == sent - rejected
            and set(numbers_after("rejected", dying, staying)) == rejected
        )

    wait_until(all_acknowledged, "every record is acknowledged", WAIT_S)
    assert set(held) <= set(numbers_after("accepted", staying) + numbers_after("rejected", staying))
    # One more record in every partition: what would be delivered again comes before it.
    applications.run("SendNumbers", target.bootstrap, topic, COUNT + 1, 9, 0)
    wait_until(lambda: set(range(COUNT + 1, COUNT + 10)) <= set(numbers_after("accepted", staying)), "the last ones")
    assert sorted(numbers_after("rejected", dying, staying)) == sorted(rejected)
    assert not words_after(staying, "FAILED")
