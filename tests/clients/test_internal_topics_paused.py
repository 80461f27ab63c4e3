"""What clients may do to an internal topic while its coordinators are paused, and what is refused even then."""

from collections.abc import Iterator

import pytest

from penstock.broker.config_admin import Resource
from penstock.broker.handlers.incremental_alter_configs import Operation
from penstock.foundation.codes import ErrorCode
from penstock.groups.records import OFFSET_COMMIT, OffsetCommitKey, OffsetCommitValue
from penstock.replication.runtimes import java_hash
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.restore_state import BYTES_MAX, ENTRIES_MAX, RestoreStateRequest, StateEntry
from penstock.wire.schema import NIL_UUID
from penstock.wire.state import state_record
from tests.brokers import BrokerProcess
from tests.damaged_internal_topics import OFFSETS

from .raw import RawClient, batch_of
from .raw_members import find_coordinator
from .waiting import wait_until

PARTITIONS = 4
GROUP = "billing"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("paused")
    process = BrokerProcess(folder, {"offsets.topic.num.partitions": PARTITIONS}).start()
    with RawClient(process.address) as client:
        find_coordinator(client, GROUP)
    yield process
    process.finish()


@pytest.fixture
def raw(process: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(process.address) as client:
        yield client
        pause(client, "")
        wait_until(lambda: listed(client) is ErrorCode.NONE, "coordinators go on")


def pause(raw: RawClient, topics: str) -> ErrorCode:
    """Cluster-wide, which confluent-kafka cannot ask for."""
    change = AlterableConfig(name="internal.topics.paused", config_operation=Operation.SET, value=topics)
    resource = AlterConfigsResource(resource_type=Resource.BROKER, resource_name="", configs=[change])
    answer = raw.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    return ErrorCode(answer.responses[0].error_code)


def listed(raw: RawClient) -> ErrorCode:
    return ErrorCode(raw.ask(ListGroupsRequest(), 5).error_code)


def entry(group: str = GROUP, *, is_deleted: bool = False, size: int = 0) -> StateEntry:
    key = OffsetCommitKey(group=group, topic="orders", partition=0)
    value = OffsetCommitValue(offset=7, leader_epoch=-1, metadata="x" * size, commit_timestamp=0, expire_timestamp=-1)
    record = state_record(OFFSET_COMMIT, key, None if is_deleted else value, 3)
    return StateEntry(key=record.key, value=record.value)


def restore(raw: RawClient, partition: int, *entries: StateEntry, count: int = 0, topic: str = OFFSETS) -> ErrorCode:
    known = count or len(raw.describe(OFFSETS).partitions)
    request = RestoreStateRequest(topic=topic, partitions=known, partition=partition, entries=entries)
    return ErrorCode(raw.ask(request, 0).error_code)


def home(raw: RawClient, group: str = GROUP) -> int:
    return java_hash(group) % len(raw.describe(OFFSETS).partitions)


def test_state_is_not_restored_while_coordinators_decide(raw: RawClient) -> None:
    assert restore(raw, home(raw), entry()) is ErrorCode.INVALID_REQUEST


def test_state_is_restored_only_where_it_belongs(raw: RawClient) -> None:
    assert pause(raw, OFFSETS) is ErrorCode.NONE
    assert listed(raw) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    right, wrong = home(raw), (home(raw) + 1) % PARTITIONS
    before = raw.fetch(OFFSETS, 0, right).high_watermark
    assert restore(raw, wrong, entry()) is ErrorCode.INVALID_RECORD
    assert restore(raw, right, entry(is_deleted=True)) is ErrorCode.INVALID_RECORD, "that would be its loss"
    assert restore(raw, right, entry(), count=PARTITIONS + 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert restore(raw, right) is ErrorCode.INVALID_REQUEST
    assert restore(raw, right, *[entry()] * (ENTRIES_MAX + 1)) is ErrorCode.INVALID_REQUEST
    assert restore(raw, right, entry(size=BYTES_MAX // 40), *[entry(size=30_000)] * 40) is ErrorCode.INVALID_REQUEST
    assert restore(raw, right, StateEntry(key=b"x", value=b"x")) is ErrorCode.INVALID_REQUEST
    assert restore(raw, right, StateEntry(key=b"\x00\x63?", value=b"x")) is ErrorCode.INVALID_RECORD
    assert restore(raw, right, entry(), topic="orders") is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert raw.fetch(OFFSETS, 0, right).high_watermark == before
    assert restore(raw, wrong, entry(is_deleted=True)) is ErrorCode.NONE
    assert restore(raw, right, entry()) is ErrorCode.NONE
    assert raw.fetch(OFFSETS, 0, right).high_watermark == before + 1
    pause(raw, "")
    wait_until(lambda: listed(raw) is ErrorCode.NONE, "coordinators go on")
    assert [group.group_id for group in raw.ask(ListGroupsRequest(), 5).groups] == [GROUP]


def test_not_even_then_may_clients_produce_to_it_or_delete_it(raw: RawClient) -> None:
    assert pause(raw, OFFSETS) is ErrorCode.NONE
    assert raw.produce(OFFSETS, batch_of([b"x"])).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    wanted = DeleteTopicState(name=OFFSETS, topic_id=NIL_UUID)
    answer = raw.ask(DeleteTopicsRequest(topics=[wanted], topic_names=(), timeout_ms=10_000), 6)
    assert answer.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_partitions_are_added_only_then(raw: RawClient) -> None:
    wanted = CreatePartitionsTopic(name=OFFSETS, count=PARTITIONS + 1, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000, validate_only=False)
    assert raw.ask(request, 3).results[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert pause(raw, OFFSETS) is ErrorCode.NONE
    assert raw.ask(request, 3).results[0].error_code == ErrorCode.NONE
    assert len(raw.describe(OFFSETS).partitions) == PARTITIONS + 1


def test_the_setting_takes_only_internal_topics(raw: RawClient) -> None:
    assert pause(raw, "orders") is ErrorCode.INVALID_CONFIG
