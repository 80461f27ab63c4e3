"""Share groups: start offset, delivery, messages that always fail, and state after a restart."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest
from tests.brokers import BrokerProcess

from .driver_confluent import ConfluentDriver
from .raw import RawClient, batch_of
from .raw_members import EPOCH_MOVES, RawProducer
from .share_raw import ACCEPT, RECORD_LIMIT, REJECT, RELEASE, ShareMember, configure, earliest
from .waiting import wait_until

NOW_MS = int(time.time() * 1000)
MakeMember = Callable[..., ShareMember]


@pytest.fixture
def jobs(share_broker: BrokerProcess, topic: str) -> str:
    """A topic with one partition."""
    ConfluentDriver(share_broker.kafka).create_topic(topic)
    return topic


@pytest.fixture
def member(share_broker: BrokerProcess) -> Iterator[MakeMember]:
    """Makes members of a topic's group that have joined it."""
    made: list[ShareMember] = []

    def make(topic: str, name: str = "m1", **options: Any) -> ShareMember:
        made.append(ShareMember(share_broker, options.pop("group", f"g-{topic}"), topic, name, **options))
        return made[-1].join()

    yield make
    for one in made:
        one.close_connection()


def produce(broker: BrokerProcess, topic: str, *values: bytes, timestamp_ms: int = NOW_MS) -> None:
    with RawClient(broker.address) as raw:
        assert raw.produce(topic, batch_of(values, timestamp_ms=timestamp_ms)).error_code == 0


# -- where it begins


def test_a_group_starts_at_the_end_by_default(share_broker: BrokerProcess, jobs: str, member: MakeMember) -> None:
    produce(share_broker, jobs, b"old")
    one = member(jobs)
    assert one.fetch() == {}
    produce(share_broker, jobs, b"new")
    assert one.fetch(max_wait_ms=20_000)[0].values == {1: b"new"}


def test_a_group_begins_so_long_ago(share_broker: BrokerProcess, jobs: str, member: MakeMember) -> None:
    produce(share_broker, jobs, b"yesterday", timestamp_ms=NOW_MS - 86_400_000)
    produce(share_broker, jobs, b"this hour", timestamp_ms=NOW_MS - 600_000)
    configure(share_broker, f"g-{jobs}", {"share.auto.offset.reset": "by_duration:PT1H"})
    assert member(jobs).fetch(max_wait_ms=20_000)[0].values == {1: b"this hour"}


def test_groups_do_not_know_of_each_other(share_broker: BrokerProcess, jobs: str, member: MakeMember) -> None:
    produce(share_broker, jobs, b"one")
    for group in ("x", "y"):
        earliest(share_broker, f"{group}-{jobs}")
        one = member(jobs, group=f"{group}-{jobs}")
        assert one.take(1) == [0]
        assert one.acknowledge((0, 0, [ACCEPT])) == ErrorCode.NONE


@pytest.mark.parametrize("begins", ["earliest", "latest"])
def test_delayed_messages_are_delivered_when_they_are_due(
    share_broker: BrokerProcess, topic: str, member: MakeMember, begins: str
) -> None:
    ConfluentDriver(share_broker.kafka).create_topic(topic, configs={"delivery.delay.ms": "1500"})
    configure(share_broker, f"g-{topic}", {"share.auto.offset.reset": begins})
    one = member(topic)
    if begins == "latest":
        assert one.fetch() == {}  # it begins here
    began_s = time.monotonic()
    produce(share_broker, topic, b"held")
    assert one.fetch(max_wait_ms=100) == {}
    got = one.fetch(max_wait_ms=20_000)[0]
    assert time.monotonic() - began_s >= 1.5
    assert got.values == {0: b"held"}
    assert one.acknowledge((0, 0, [ACCEPT])) == ErrorCode.NONE


# -- transactions


def test_read_committed_waits_for_transactions_and_skips_aborted_records(
    share_broker: BrokerProcess, jobs: str, member: MakeMember
) -> None:
    earliest(share_broker, f"c-{jobs}", share_isolation_level="read_committed")
    earliest(share_broker, f"u-{jobs}")
    careful, quick = member(jobs, group=f"c-{jobs}"), member(jobs, group=f"u-{jobs}")
    with RawClient(share_broker.address) as raw:
        producer = RawProducer(raw, f"tx-{jobs}", version=EPOCH_MOVES)
        assert producer.init() == ErrorCode.NONE
        assert producer.produce(jobs, b"lost") == ErrorCode.NONE
        assert quick.take(1) == [0]
        assert careful.fetch() == {}
        assert producer.abort() == ErrorCode.NONE
        wait_until(lambda: producer.produce(jobs, b"kept") == ErrorCode.NONE, "the marker is written")
        careful.raw.send(careful.request(max_wait_ms=20_000), 2)
        assert producer.commit() == ErrorCode.NONE
    (acquired,) = careful.raw.receive().responses[0].partitions[0].acquired_records
    assert (acquired.first_offset, acquired.last_offset) == (2, 2), "the markers lie between"


# -- messages that always fail


def test_a_message_that_was_delivered_too_often_is_given_up(
    share_broker: BrokerProcess, jobs: str, member: MakeMember
) -> None:
    earliest(share_broker, f"g-{jobs}", share_delivery_count_limit="2")
    produce(share_broker, jobs, b"poison", b"good")
    one = member(jobs)
    for count in (1, 2):
        got = one.fetch(max_wait_ms=20_000, max_records=1, share_acquire_mode=RECORD_LIMIT)[0]
        assert got.acquired == [(0, 0, count)]
        one.acknowledge((0, 0, [RELEASE]))
    assert one.fetch(max_wait_ms=20_000)[0].acquired == [(1, 1, 1)]
    one.acknowledge((1, 1, [ACCEPT]))
    assert one.described(0)[0].start_offset == 2


def test_rejected_and_exhausted_messages_become_dead_letters(
    share_broker: BrokerProcess, jobs: str, member: MakeMember
) -> None:
    ConfluentDriver(share_broker.kafka).create_topic(f"dlq.{jobs}", partitions=1)
    earliest(
        share_broker,
        f"g-{jobs}",
        share_delivery_count_limit="2",
        errors_deadletterqueue_topic_name=f"dlq.{jobs}",
    )
    produce(share_broker, jobs, b"rejected", b"given up", b"good")
    one = member(jobs)
    one.take(3)
    one.acknowledge((0, 2, [REJECT, RELEASE, ACCEPT]))
    assert one.take(1) == [1]
    one.acknowledge((1, 1, [RELEASE]))
    assert one.fetch() == {}
    with RawClient(share_broker.address) as raw:
        wait_until(lambda: len(raw.batches(f"dlq.{jobs}")) == 2, "both are there")
        found = [record for _, records in raw.batches(f"dlq.{jobs}") for record in records]
    assert [record.value for record in found] == [b"rejected", b"given up"]
    said = [dict(record.headers) for record in found]
    assert said == [
        {
            "__dlq.errors.topic": jobs.encode(),
            "__dlq.errors.partition": b"0",
            "__dlq.errors.offset": b"%d" % offset,
            "__dlq.errors.group": f"g-{jobs}".encode(),
            "__dlq.errors.delivery.count": b"%d" % count,
        }
        for offset, count in ((0, 1), (1, 2))
    ]
    wait_until(lambda: one.described(0)[0].start_offset == 3, "all of it is finished")


# -- looking and setting


def test_it_can_be_seen_how_far_a_group_is(share_broker: BrokerProcess, jobs: str, member: MakeMember) -> None:
    earliest(share_broker, f"g-{jobs}")
    produce(share_broker, jobs, *(b"v%d" % index for index in range(6)))
    one = member(jobs)
    seen = one.described(0)[0]
    assert (seen.start_offset, seen.lag, seen.error_code) == (-1, -1, 0), "it has not begun"
    one.fetch(max_wait_ms=20_000, max_records=4, share_acquire_mode=RECORD_LIMIT)
    one.acknowledge((0, 0, [ACCEPT]), (2, 2, [ACCEPT]))
    seen = one.described(0)[0]
    assert (seen.start_offset, seen.lag) == (1, 4)
    old = one.described(0, version=0)[0]
    assert (old.start_offset, old.leader_epoch) == (1, seen.leader_epoch)


def test_groups_and_topics_that_are_not_there_are_named(
    share_broker: BrokerProcess, jobs: str, member: MakeMember
) -> None:
    one = member(jobs)
    topic = DescribeShareGroupOffsetsRequestTopic(topic_name="nowhere", partitions=(0,))
    groups = [
        DescribeShareGroupOffsetsRequestGroup(group_id="missing", topics=None),
        DescribeShareGroupOffsetsRequestGroup(group_id=one.group, topics=[topic]),
        DescribeShareGroupOffsetsRequestGroup(group_id=one.group, topics=None),
    ]
    missing, nowhere, all_of_it = one.raw.ask(DescribeShareGroupOffsetsRequest(groups=groups), 1).groups
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert nowhere.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [found.topic_name for found in all_of_it.topics] == [jobs]


def _alter(raw: RawClient, group: str, topic: str, offset: int, number: int = 0) -> Any:
    partition = AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)
    topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[partition])]
    return raw.ask(AlterShareGroupOffsetsRequest(group_id=group, topics=topics), 0)


def test_a_group_without_members_can_be_set_to_an_offset(
    share_broker: BrokerProcess, jobs: str, member: MakeMember
) -> None:
    produce(share_broker, jobs, *(b"v%d" % index for index in range(5)))
    one = member(jobs)
    assert _alter(one.raw, one.group, jobs, 3).error_code == ErrorCode.NON_EMPTY_GROUP
    one.beat(-1)
    answer = _alter(one.raw, one.group, jobs, 3)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
    one.epoch = one.member_epoch = 0
    assert one.join().take(2) == [3, 4]
    one.acknowledge((3, 4, [ACCEPT]))
    one.beat(-1)
    _alter(one.raw, one.group, jobs, 0)
    two = member(jobs, "m2")
    assert two.take(5) == [0, 1, 2, 3, 4], "and back again"
    two.beat(-1)
    assert _alter(one.raw, one.group, jobs, 99).error_code == ErrorCode.NONE
    assert one.described(0)[0].start_offset == 5, "never beyond the end: what comes next would be skipped"
    wrong = _alter(one.raw, f"new-{jobs}", jobs, 0, number=5).responses[0].partitions[0]
    assert wrong.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_group_that_is_set_before_it_has_members_begins_there(
    share_broker: BrokerProcess, jobs: str, member: MakeMember
) -> None:
    produce(share_broker, jobs, *(b"v%d" % index for index in range(5)))
    other = member(jobs, group=f"other-{jobs}")  # whose coordinator is there
    wait_until(lambda: _alter(other.raw, f"g-{jobs}", jobs, 4).error_code == 0, "the coordinator answers")
    assert member(jobs).take(1) == [4]


def test_offsets_can_be_deleted_and_then_the_group_begins_anew(
    share_broker: BrokerProcess, jobs: str, member: MakeMember
) -> None:
    earliest(share_broker, f"g-{jobs}")
    produce(share_broker, jobs, b"v")
    one = member(jobs)
    one.take(1)
    one.acknowledge((0, 0, [ACCEPT]))
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in (jobs, "nowhere")]
    request = DeleteShareGroupOffsetsRequest(group_id=one.group, topics=topics)
    assert one.raw.ask(request, 0).error_code == ErrorCode.NON_EMPTY_GROUP
    one.beat(-1)
    answer = one.raw.ask(request, 0)
    assert [entry.error_code for entry in answer.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert member(jobs, "m2").take(1) == [0]


def test_a_group_that_is_deleted_has_never_been_anywhere(
    share_broker: BrokerProcess, jobs: str, member: MakeMember
) -> None:
    earliest(share_broker, f"g-{jobs}")
    produce(share_broker, jobs, b"v")
    one = member(jobs)
    one.take(1)
    one.acknowledge((0, 0, [ACCEPT]))

    def delete() -> ErrorCode:
        (result,) = one.raw.ask(DeleteGroupsRequest(groups_names=(one.group,)), 2).results
        return ErrorCode(result.error_code)

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    one.beat(-1)
    assert delete() == ErrorCode.NONE
    assert delete() == ErrorCode.GROUP_ID_NOT_FOUND
    assert member(jobs, "m2").take(1) == [0]


def test_a_group_is_listed_and_described(share_broker: BrokerProcess, jobs: str, member: MakeMember) -> None:
    one = member(jobs)
    listed = one.raw.ask(ListGroupsRequest(states_filter=(), types_filter=("share",)), 5).groups
    assert {group.group_type for group in listed} == {"share"}
    assert one.group in {group.group_id for group in listed}
    request = ShareGroupDescribeRequest(group_ids=(one.group, "", "missing"), include_authorized_operations=True)
    found = {group.group_id: group for group in one.raw.ask(request, 1).groups}
    assert found[one.group].group_state == "Stable"
    assert found[one.group].authorized_operations > 0
    (described,) = found[one.group].members
    assert (described.member_id, described.client_id) == ("m1", "raw")
    assert found[""].error_code == ErrorCode.INVALID_GROUP_ID
    assert found["missing"].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_topic_that_goes_takes_its_delivery_state_with_it(
    share_broker: BrokerProcess, jobs: str, member: MakeMember
) -> None:
    earliest(share_broker, f"g-{jobs}")
    produce(share_broker, jobs, b"v")
    one = member(jobs)
    one.take(1)
    driver = ConfluentDriver(share_broker.kafka)
    driver.delete_topic(jobs)
    assert one.fetch(max_wait_ms=20_000)[0].error == ErrorCode.UNKNOWN_TOPIC_ID
    wait_until(lambda: one.raw.describe(jobs).error_code != 0, "it is gone")
    driver.create_topic(jobs)
    produce(share_broker, jobs, b"another")
    two = member(jobs, "m2")
    assert two.fetch(max_wait_ms=20_000)[0].values == {0: b"another"}


# -- what survives


@pytest.mark.parametrize("is_killed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_acknowledged_and_acquired_messages_survive_a_broker_restart(
    own_broker: Callable[..., BrokerProcess], topic: str, is_killed: bool
) -> None:
    broker = own_broker({"group.share.heartbeat.interval.ms": 100})
    ConfluentDriver(broker.kafka).create_topic(topic)
    earliest(broker, "g", share_record_lock_duration_ms="60000")
    produce(broker, topic, *(b"v%d" % index for index in range(6)))
    one = ShareMember(broker, "g", topic).join()
    one.take(6)
    one.acknowledge((0, 0, [ACCEPT]), (1, 1, [RELEASE]))
    if is_killed:
        broker.kill()
    else:
        broker.stop()
    broker.start()
    one.close_connection()
    two = ShareMember(broker, "g", topic, "m2").join()
    assert two.fetch(max_wait_ms=20_000)[0].acquired == [(1, 1, 2)], "what the first one has is with it"
    assert (two.described(0)[0].start_offset, two.described(0)[0].lag) == (1, 5)
    back = ShareMember(broker, "g", topic)
    back.fetch()
    assert back.acknowledge((2, 5, [ACCEPT])) == ErrorCode.NONE, "and may be acknowledged"
    for member in (two, back):
        member.close_connection()
