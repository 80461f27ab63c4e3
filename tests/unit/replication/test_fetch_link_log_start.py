"""A leader whose log was trimmed inside a batch, and a follower with an empty log."""

from random import Random

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.log.log import Log
from penstock.replication.fetch_link import FetchLink
from penstock.replication.follower import Following
from penstock.replication.partition import Partition
from penstock.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.simulation.disk import FakeDisk

from ..log.builders import ENDLESS, NOW_MS, all_records, append, open_at
from .test_fetch_link_throttle import NODE, TOPIC_ID, follower


def trimmed_leader() -> Log:
    leader = open_at()
    append(leader, b"a")
    append(leader, b"b", b"c", b"d")
    append(leader, b"e")
    leader.trim(2)  # within the second batch
    return leader


def serve(link: FetchLink, partition: Partition, leader: Log) -> None:
    """The leader's answer to the next request."""
    request = link.request(broker_epoch=7, max_wait_ms=0, max_bytes=1 << 20, now_ms=NOW_MS)
    assert request is not None
    offset = request.topics[0].partitions[0].fetch_offset
    is_there = leader.start_offset <= offset <= leader.end_offset
    data = PartitionData(
        partition_index=partition.name.partition,
        error_code=ErrorCode.NONE if is_there else ErrorCode.OFFSET_OUT_OF_RANGE,
        high_watermark=leader.end_offset,
        log_start_offset=leader.start_offset,
        aborted_transactions=None,
        records=leader.read(offset, 1 << 20, ENDLESS, blocking=True) if is_there else None,
    )
    topic = FetchableTopicResponse(topic="", topic_id=TOPIC_ID, partitions=[data])
    link.apply(FetchResponse(throttle_time_ms=0, session_id=0, responses=[topic]), NOW_MS)


def test_a_follower_without_data_catches_up_with_a_log_trimmed_in_the_middle_of_a_batch() -> None:
    leader, link, partition = trimmed_leader(), FetchLink(NODE, uses_sessions=False), follower(0, "")
    link.put(partition)
    for _ in range(3):
        serve(link, partition, leader)
    log = partition.log
    assert (log.start_offset, log.end_offset, partition.high_watermark) == (2, 5, 5)
    assert all_records(log) == all_records(leader)


def test_a_follower_whose_batches_were_all_trimmed_catches_up_though_they_end_in_the_middle_of_a_batch() -> None:
    leader, link, partition = trimmed_leader(), FetchLink(NODE, uses_sessions=False), follower(0, "")
    append(partition.log, b"a")
    append(partition.log, b"from an older leader, and never committed")
    link.put(partition)
    for _ in range(3):
        serve(link, partition, leader)
    log = partition.log
    assert (log.start_offset, log.end_offset, partition.high_watermark) == (2, 5, 5)
    assert all_records(log) == all_records(leader)


def test_a_batch_that_a_follower_has_in_part_is_refused_while_the_leader_has_more_of_its_log() -> None:
    """That would be a log of another history: it is for the epochs to find, and nothing is dropped here."""
    leader, log = trimmed_leader(), open_at()
    append(log, b"a")
    append(log, b"x", b"y")
    following = Following(log, 0)
    assert not following.starts_inside_batch(leader.read(2, 1 << 20, ENDLESS, blocking=True), leader.start_offset)


@pytest.mark.parametrize("seed", range(30))
def test_the_log_can_be_opened_if_power_is_lost_meanwhile(seed: int) -> None:
    leader, disk = trimmed_leader(), FakeDisk(Random(seed))
    following = Following(open_at(disk), 0)
    following.restart_at(2, NOW_MS)
    following.log.sync()
    records = leader.read(2, 1 << 20, ENDLESS, blocking=True)
    assert following.starts_inside_batch(records, 2)
    following.restart_inside(records, 5, 2, NOW_MS)
    if seed % 2:
        following.log.sync()
    disk.lose_power()
    log = open_at(disk, boot="another")
    assert log.end_offset in ((5,) if seed % 2 else (1, 2, 4, 5))
    append(log, b"next")
