"""A lagging follower fetches within its quota, in turn, and without a quota once it is in sync."""

from penstock.cluster.image import PartitionState
from penstock.foundation.ids import TopicPartition
from penstock.log.log import Log
from penstock.replication.fetch_link import FetchLink
from penstock.replication.partition import Partition
from penstock.replication.throttle import Throttle
from penstock.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

from ..log.builders import NOW_MS, batch, open_at

NODE, LEADER = 2, 1
TOPIC_ID = b"\1" * 16
RATE = 10_000


def follower(number: int = 0, throttled: str = "*", log: Log | None = None) -> Partition:
    """A replica of this broker's that another one leads."""
    log = log or open_at(follower_replication_throttled_replicas=throttled)
    made = Partition(topic_id=TOPIC_ID, name=TopicPartition("orders", number), leader_epoch=-1, log=log)
    state = PartitionState(replicas=(LEADER, NODE), leader=LEADER, leader_epoch=3, isr=(LEADER,))
    made.become_follower(state, NODE)
    return made


def asked(link: FetchLink, now_ms: int) -> dict[int, int]:
    """The partitions that are asked for now, and how many bytes of each."""
    found: FetchRequest | None = link.request(broker_epoch=7, max_wait_ms=0, max_bytes=1 << 20, now_ms=now_ms)
    if found is None:
        return {}
    return {entry.partition: entry.partition_max_bytes for topic in found.topics for entry in topic.partitions}


def answer(number: int, records: bytes) -> FetchResponse:
    data = PartitionData(
        partition_index=number, error_code=0, high_watermark=0, log_start_offset=0, aborted_transactions=None,
        records=records,
    )  # fmt: skip
    return FetchResponse(
        throttle_time_ms=0,
        session_id=0,
        responses=[FetchableTopicResponse(topic="", topic_id=TOPIC_ID, partitions=[data])],
    )


def link_with(throttle: Throttle, *partitions: Partition, lagging: bool = True) -> FetchLink:
    link = FetchLink(NODE, uses_sessions=False, throttle=throttle)
    for partition in partitions:
        link.put(partition, lagging)
    return link


def test_it_asks_for_no_more_than_there_is_room_for() -> None:
    one = follower()
    link = link_with(Throttle(lambda: RATE), one)
    assert asked(link, NOW_MS) == {}
    assert link.wait_ms(NOW_MS) > 0
    assert asked(link, NOW_MS + 500) == {0: RATE // 2}


def test_fetched_bytes_are_taken_from_the_quota() -> None:
    throttle = Throttle(lambda: RATE)
    link = link_with(throttle, follower())
    asked(link, NOW_MS)
    asked(link, NOW_MS + 1000)
    data = bytes(batch(b"x" * 3 * RATE))
    assert link.apply(answer(0, data), NOW_MS + 1000).bytes == len(data)
    assert throttle.taken == len(data)
    assert asked(link, NOW_MS + 1000) == {}
    assert asked(link, NOW_MS + 2000) == {}
    assert asked(link, NOW_MS + 4000) != {}


def test_all_that_lag_get_their_turn() -> None:
    link = link_with(Throttle(lambda: RATE), follower(0), follower(1), follower(2))
    link.fetch_bytes = RATE
    asked(link, NOW_MS)
    seen = [number for _ in range(3) for number in asked(link, NOW_MS + 500)]
    assert sorted(seen) == [0, 1, 2]


def test_in_sync_and_unlisted_replicas_are_not_throttled() -> None:
    in_sync = link_with(Throttle(lambda: 0), follower(), lagging=False)
    assert asked(in_sync, NOW_MS) == {0: in_sync.fetch_bytes}
    other = link_with(Throttle(lambda: 0), follower(throttled="0:3,1:2"))
    assert asked(other, NOW_MS) == {0: other.fetch_bytes}
    named = link_with(Throttle(lambda: 0), follower(throttled="0:2"))
    assert asked(named, NOW_MS + 1000) == {}


def test_others_are_asked_for_while_one_is_held_back() -> None:
    held, free = follower(0), follower(1, throttled="")
    link = link_with(Throttle(lambda: 0), held, free)
    assert asked(link, NOW_MS) == {1: link.fetch_bytes}
    assert link.wait_ms(NOW_MS) == 0


def test_a_replica_that_comes_into_sync_is_not_throttled_any_more() -> None:
    one = follower()
    link = link_with(Throttle(lambda: 0), one)
    assert asked(link, NOW_MS) == {}
    link.put(one)
    assert asked(link, NOW_MS) == {0: link.fetch_bytes}
