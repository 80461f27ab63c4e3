"""A partition that its leader refused is fetched again after a short backoff."""

from penstock.foundation.codes import ErrorCode
from penstock.replication.fetch_link import BACKOFF_MAX_MS, BACKOFF_MIN_MS, FetchLink
from penstock.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

from ..log.builders import NOW_MS
from .test_fetch_link_throttle import NODE, TOPIC_ID, follower

WAIT_MS = 500


def refusal(number: int) -> FetchResponse:
    data = PartitionData(
        partition_index=number,
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        high_watermark=-1,
        aborted_transactions=None,
        records=None,
    )
    return FetchResponse(
        throttle_time_ms=0,
        session_id=0,
        responses=[FetchableTopicResponse(topic="", topic_id=TOPIC_ID, partitions=[data])],
    )


def asked(link: FetchLink, now_ms: int) -> tuple[set[int], int]:
    """The partitions that are asked for, and how long the leader may wait for them to grow."""
    found = link.request(broker_epoch=7, max_wait_ms=WAIT_MS, max_bytes=1 << 20, now_ms=now_ms)
    assert found is not None
    return {entry.partition for topic in found.topics for entry in topic.partitions}, found.max_wait_ms


def test_while_a_partition_rests_the_leader_is_not_asked_to_wait_longer_than_that() -> None:
    link = FetchLink(NODE, uses_sessions=False)
    link.put(follower(0, ""))
    link.put(follower(1, ""))
    assert asked(link, NOW_MS) == ({0, 1}, WAIT_MS)
    link.apply(refusal(1), NOW_MS)
    assert asked(link, NOW_MS) == ({0}, BACKOFF_MIN_MS)
    assert asked(link, NOW_MS + BACKOFF_MIN_MS - 1) == ({0}, 1)
    assert asked(link, NOW_MS + BACKOFF_MIN_MS) == ({0, 1}, WAIT_MS)


def test_a_partition_that_is_refused_again_and_again_rests_longer_each_time() -> None:
    link = FetchLink(NODE, uses_sessions=False)
    link.put(follower(0, ""))
    link.put(follower(1, ""))
    now_ms, rests_ms = NOW_MS, []
    for _ in range(8):
        assert asked(link, now_ms)[0] == {0, 1}
        link.apply(refusal(1), now_ms)
        rests_ms.append(asked(link, now_ms)[1])
        now_ms += rests_ms[-1]
    assert rests_ms == [10, 20, 40, 80, 160, BACKOFF_MAX_MS, BACKOFF_MAX_MS, BACKOFF_MAX_MS]
