"""Coordinators are loaded from any contents of their topics, or report that they cannot be; brokers are killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import uuid_text
from penstock.records.build import build_pairs
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from tests.brokers import BrokerProcess
from tests.damaged_internal_topics import (
    NOW_MS,
    OFFSETS,
    TRANSACTIONS,
    UNREADABLE_COUNT,
    append_to_log,
    append_to_logs,
    commit_all,
    committed,
    damage,
    groups_by_partition,
    make_topic,
    unreadable,
)
from tests.sqs_clients import JSON, sqs_client

from .raw import RawClient
from .raw_members import TRANSACTION, RawProducer, find_coordinator
from .waiting import wait_until

GROUPS = [f"group-{number}" for number in range(40)]
"""Enough that many partitions have one."""
PARTITIONS = 50
SKIPPED = "penstock_coordinator_skipped_records_total"
UNLOADED = "penstock_coordinator_unloaded_partitions"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker whose log may hold errors: they are what is tested."""
    process = BrokerProcess(tmp_path).start()
    make_topic(process.kafka)
    yield process
    if process.is_running:
        process.kill()


def listed(process: BrokerProcess) -> tuple[ErrorCode, set[str]]:
    with RawClient(process.address) as raw:
        answer = raw.ask(ListGroupsRequest(), 5)
        return ErrorCode(answer.error_code), {group.group_id for group in answer.groups}


def wait_for_list(process: BrokerProcess, code: ErrorCode = ErrorCode.NONE) -> set[str]:
    """The groups, once they are listed with this code."""
    wait_until(lambda: listed(process)[0] is code, f"groups are listed with {code.name}", 60)
    return listed(process)[1]


def restart(process: BrokerProcess) -> None:
    process.kill()
    process.start()


def test_records_that_cannot_be_read_leave_all_groups_loaded(process: BrokerProcess) -> None:
    """One record of one byte in each partition left every coordinator unloaded, and ListGroups named no group."""
    wanted = commit_all(process.kafka, GROUPS)
    process.kill()
    assert append_to_logs(process.data_dir, OFFSETS, unreadable(OFFSETS)) == PARTITIONS
    process.start()
    for _ in range(2):
        assert wait_for_list(process) == set(GROUPS)
        assert committed(process.kafka, GROUPS) == wanted
        assert process.metric(SKIPPED) == PARTITIONS * UNREADABLE_COUNT
        assert process.metric(UNLOADED) == 0
        restart(process)
    text = process.log
    assert "state_record_skipped partition=__consumer_offsets-0 offset=" in text
    assert f"state_records_skipped partition=__consumer_offsets-0 records={UNREADABLE_COUNT}" in text
    assert "level=ERROR" not in text


def test_records_that_cannot_be_read_leave_all_transactions_loaded(process: BrokerProcess) -> None:
    names = [f"tx-{number}" for number in range(30)]
    with RawClient(process.address) as raw:
        for name in names:
            assert RawProducer(raw, name).init() is ErrorCode.NONE
    process.kill()
    assert append_to_logs(process.data_dir, TRANSACTIONS, unreadable(TRANSACTIONS)) == PARTITIONS
    process.start()
    request = ListTransactionsRequest(state_filters=(), producer_id_filters=())
    with RawClient(process.address) as raw:
        find_coordinator(raw, names[0], TRANSACTION)
        answer = raw.ask(request, 1)
        assert {state.transactional_id for state in answer.transaction_states} == set(names)
        for name in names:
            producer = RawProducer(raw, name)
            assert (producer.init(), producer.epoch) == (ErrorCode.NONE, 1), "the epoch goes on from where it was"
    assert process.metric(SKIPPED) == PARTITIONS * UNREADABLE_COUNT


def test_a_damaged_partition_is_reported_and_the_others_are_served(process: BrokerProcess) -> None:
    """A wrong checksum is no record to skip: committed offsets would be lost without a word."""
    wanted = commit_all(process.kafka, GROUPS)
    process.stop()
    homes = groups_by_partition(GROUPS, PARTITIONS)
    broken = homes[GROUPS[0]]
    damage(process.data_dir, OFFSETS, broken)
    process.start()
    for _ in range(2):
        assert wait_for_list(process, ErrorCode.COORDINATOR_NOT_AVAILABLE) == set()
        with RawClient(process.address) as raw:
            codes = {
                group.group_id: group.error_code for group in raw.ask(DescribeGroupsRequest(groups=GROUPS), 5).groups
            }
        assert codes == {
            group: ErrorCode.COORDINATOR_NOT_AVAILABLE if homes[group] == broken else ErrorCode.NONE
            for group in GROUPS
        }
        assert process.metric(rf'{UNLOADED}{{coordinator="group",state="offline"}}') == 1
        assert f"state_not_loaded partition={OFFSETS}-{broken} tries=1" in process.log
        restart(process)
    process.kill()
    damage(process.data_dir, OFFSETS, broken)  # the same bit once more: the disk is mended
    process.start()
    assert wait_for_list(process) == set(GROUPS)
    assert committed(process.kafka, GROUPS) == wanted


def test_delivery_state_that_cannot_be_read_stops_its_queue_and_nothing_else(
    process: BrokerProcess, tmp_path: Path
) -> None:
    """Records of a companion log are not skipped: their messages would count as finished."""
    with RawClient(process.address) as raw:
        find_coordinator(raw, "sharers")
        sqs_client(process.http, JSON, tmp_path).create_queue(QueueName="jobs")
        own = uuid_text(raw.describe("jobs").topic_id)
    process.kill()
    (companion,) = [path for path in (process.data_dir / "logs" / "jobs").glob("0.*") if path.name != f"0.{own}"]
    append_to_log(process.data_dir, companion, [build_pairs([(b"\x63", b"of a later version")], NOW_MS)])
    process.start()
    failed = rf'{UNLOADED}{{coordinator="queue",state="failed"}}'
    wait_until(lambda: process.metric(failed) == 1, "the queue is reported", 60)
    wait_until(lambda: "state_not_loaded partition=jobs-0 tries=2" in process.log, "it is read again", 60)
    with RawClient(process.address) as raw:
        assert raw.fetch("jobs", 0).error_code == ErrorCode.NONE
    assert wait_for_list(process) == set()
    process.kill()
    assert process.log.count("state_not_loaded") < 10
