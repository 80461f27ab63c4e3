"""ShareFetch and ShareAcknowledge over a real connection, frame by frame (KIP-932, KIP-1206, KIP-1222)."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.wire.frames import request_frame
from penstock.wire.messages.api_versions import ApiVersionsRequest
from tests.brokers import BrokerProcess

from .driver_confluent import ConfluentDriver
from .raw import RawClient, batch_of
from .share_raw import (
    ACCEPT,
    GAP,
    RECORD_LIMIT,
    REJECT,
    RELEASE,
    RENEW,
    ShareMember,
    configure,
    earliest,
    offsets_of,
)
from .waiting import wait_until

LOCK_S = 2.0
QUICK_LOCKS = {"share_record_lock_duration_ms": str(int(LOCK_S * 1000))}

MakeMember = Callable[..., ShareMember]


@pytest.fixture
def jobs(share_broker: BrokerProcess, topic: str) -> str:
    """A topic with one partition and ten messages, in batches of five."""
    ConfluentDriver(share_broker.kafka).create_topic(topic)
    earliest(share_broker, f"g-{topic}")
    produce(share_broker, topic, 5)
    produce(share_broker, topic, 5)
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


def produce(broker: BrokerProcess, topic: str, count: int, prefix: str = "v") -> None:
    with RawClient(broker.address) as raw:
        assert raw.produce(topic, batch_of([f"{prefix}{index}".encode() for index in range(count)])).error_code == 0


def pass_s(seconds: float) -> None:
    """Let so much time pass: there is nothing to be seen of it."""
    until_s = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= until_s, "time passes", timeout_s=seconds + 10)


# -- acquiring and acknowledging


def test_clients_see_that_there_are_share_groups(share_broker: BrokerProcess) -> None:
    with RawClient(share_broker.address) as raw:
        answer = raw.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    served = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert {key: served[key] for key in (76, 77, 78, 79, 90, 91, 92)} == {
        76: (1, 1),
        77: (1, 1),
        78: (1, 2),
        79: (1, 2),
        90: (0, 1),
        91: (0, 0),
        92: (0, 0),
    }
    finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    assert finalized["share.version"] == 1


@pytest.mark.parametrize("version", [1, 2])
def test_messages_are_acquired_and_accepted_in_every_version(jobs: str, member: MakeMember, version: int) -> None:
    one = member(jobs, version=version)
    response = one.ask()
    assert response.acquisition_lock_timeout_ms == 30_000
    (data,) = response.responses[0].partitions
    assert [(each.first_offset, each.last_offset, each.delivery_count) for each in data.acquired_records] == [
        (0, 9, 1)
    ]
    assert one.acknowledge((0, 9, [ACCEPT])) == ErrorCode.NONE
    assert one.fetch() == {}
    again = member(jobs, "m2", version=version)
    assert again.fetch() == {}, "what is accepted is done"


def test_acquired_messages_are_not_delivered_to_other_members(jobs: str, member: MakeMember) -> None:
    one, two = member(jobs), member(jobs, "m2")
    assert offsets_of(one.fetch(max_records=5)[0].acquired) == [0, 1, 2, 3, 4]
    assert offsets_of(two.fetch()[0].acquired) == [5, 6, 7, 8, 9]
    assert one.fetch() == two.fetch() == {}


def test_a_fetch_acknowledges_and_fetches_in_one(jobs: str, member: MakeMember) -> None:
    one = member(jobs)
    one.fetch(max_records=5)
    got = one.fetch({0: [(0, 4, [ACCEPT])]})
    assert got[0].acknowledge_error == ErrorCode.NONE
    assert got[0].acquired == [(5, 9, 1)]


def test_each_message_can_be_acknowledged_on_its_own(jobs: str, member: MakeMember) -> None:
    one = member(jobs)
    one.fetch()
    kinds = [ACCEPT, RELEASE, REJECT, GAP, ACCEPT, RELEASE, RELEASE, ACCEPT, ACCEPT, ACCEPT]
    assert one.acknowledge((0, 9, kinds)) == ErrorCode.NONE
    got = one.fetch()[0]
    assert got.acquired == [(1, 1, 2), (5, 6, 2)], "what is released is delivered again, and counted"
    assert got.values == {1: b"v1", 5: b"v0", 6: b"v1"}


def test_partitions_are_added_and_forgotten(share_broker: BrokerProcess, topic: str) -> None:
    ConfluentDriver(share_broker.kafka).create_topic(topic, partitions=3)
    earliest(share_broker, f"g-{topic}")
    one = ShareMember(share_broker, f"g-{topic}", topic).join(partitions=3)
    with RawClient(share_broker.address) as raw:
        for number in range(3):
            raw.produce(topic, batch_of([b"v"]), number)
    assert set(one.fetch(partitions=(0,))) == {0}
    assert set(one.fetch(partitions=(1, 2), forget=(2,))) == {1, 2}
    one.acknowledged({number: [(0, 0, [RELEASE])] for number in range(3)})
    assert set(one.fetch(forget=(0, 1))) == {2}
    one.close_connection()


# -- how much


def test_more_than_wanted_comes_so_that_no_batch_is_cut(jobs: str, member: MakeMember) -> None:
    one = member(jobs)
    assert one.fetch(max_records=3)[0].acquired == [(0, 4, 1)]
    assert one.fetch(max_records=2, share_acquire_mode=RECORD_LIMIT)[0].acquired == [(5, 6, 1)]
    assert one.fetch(max_records=1, share_acquire_mode=RECORD_LIMIT)[0].acquired == [(7, 7, 1)]


def test_acquired_ranges_are_split_at_the_requested_batch_size(jobs: str, member: MakeMember) -> None:
    one = member(jobs)
    assert one.fetch(batch_size=3)[0].acquired == [(0, 4, 1), (5, 9, 1)]


def test_no_more_is_with_members_than_a_partition_may_lend(
    share_broker: BrokerProcess, topic: str, member: MakeMember
) -> None:
    ConfluentDriver(share_broker.kafka).create_topic(topic)
    earliest(share_broker, f"g-{topic}", share_partition_max_record_locks="100")
    produce(share_broker, topic, 150)
    one = member(topic)
    assert len(offsets_of(one.fetch()[0].acquired)) == 100
    assert one.fetch() == {}
    one.acknowledge((0, 49, [ACCEPT]))
    assert offsets_of(one.fetch()[0].acquired) == list(range(100, 150))


# -- waiting


def test_a_fetch_waits_for_messages_and_no_longer_than_it_wants(
    share_broker: BrokerProcess, jobs: str, member: MakeMember
) -> None:
    one = member(jobs)
    one.take(10)
    began_s = time.monotonic()
    assert one.fetch(max_wait_ms=300) == {}
    assert time.monotonic() - began_s >= 0.25  # timers are not exact
    one.raw.send(one.request(max_wait_ms=20_000), 2)
    produce(share_broker, jobs, 1)
    answer = one.raw.receive()
    assert answer.responses[0].partitions[0].acquired_records[0].first_offset == 10


def test_a_fetch_does_not_wait_for_more_bytes(jobs: str, member: MakeMember) -> None:
    assert len(member(jobs).fetch(min_bytes=1 << 20, max_wait_ms=60_000)[0].values) > 0


def test_of_several_acknowledgements_those_that_are_right_count(jobs: str, member: MakeMember) -> None:
    one = member(jobs)
    one.fetch(max_records=5)
    assert one.acknowledge((0, 4, [ACCEPT]), (9, 9, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert one.acknowledge((0, 0, [RELEASE])) == ErrorCode.INVALID_RECORD_STATE, "it is done"


def test_a_released_message_wakes_waiting_fetches(jobs: str, member: MakeMember) -> None:
    one, two = member(jobs), member(jobs, "m2")
    one.take(10)
    two.fetch()
    two.raw.send(two.request(max_wait_ms=20_000), 2)
    one.acknowledge((3, 3, [RELEASE]))
    answer = two.raw.receive()
    (acquired,) = answer.responses[0].partitions[0].acquired_records
    assert (acquired.first_offset, acquired.last_offset, acquired.delivery_count) == (3, 3, 2)


# -- locks


def test_an_acknowledgement_after_the_lock_has_expired_is_refused_and_the_message_comes_again(
    share_broker: BrokerProcess, jobs: str, member: MakeMember
) -> None:
    earliest(share_broker, f"g-{jobs}", **QUICK_LOCKS)
    one, two = member(jobs), member(jobs, "m2")
    one.fetch(max_records=1, share_acquire_mode=RECORD_LIMIT)
    assert one.ask().acquisition_lock_timeout_ms == LOCK_S * 1000
    pass_s(LOCK_S)
    for kind in (ACCEPT, RELEASE, REJECT):
        assert one.acknowledge((1, 9, [kind])) == ErrorCode.INVALID_RECORD_STATE
    assert two.take(10) == list(range(10))
    assert one.acknowledge((0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert two.acknowledge((0, 9, [ACCEPT])) == ErrorCode.NONE


@pytest.mark.parametrize("by_fetch", [False, True])
def test_a_lock_that_is_renewed_holds(
    share_broker: BrokerProcess, jobs: str, member: MakeMember, by_fetch: bool
) -> None:
    earliest(share_broker, f"g-{jobs}", **QUICK_LOCKS)
    one, two = member(jobs), member(jobs, "m2")
    one.take(10)
    configure(share_broker, f"g-{jobs}", {"share.record.lock.duration.ms": "60000"})
    if by_fetch:
        nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
        answer = one.ask({0: [(0, 4, [RENEW]), (5, 5, [ACCEPT])]}, is_renew_ack=True, **nothing)
        (data,) = answer.responses[0].partitions
        assert (data.acknowledge_error_code, data.error_code, data.acquired_records) == (0, 0, [])
        assert answer.acquisition_lock_timeout_ms == 60_000
    else:
        answer = one.acknowledged({0: [(0, 4, [RENEW]), (5, 5, [ACCEPT])]}, is_renew_ack=True)
        assert answer.responses[0].partitions[0].error_code == 0
        assert answer.acquisition_lock_timeout_ms == 60_000
    pass_s(LOCK_S)
    assert two.take(4) == [6, 7, 8, 9], "only what was not renewed comes back"
    assert one.acknowledge((0, 4, [ACCEPT])) == ErrorCode.NONE


def test_an_expired_acquisition_lock_cannot_be_renewed(
    share_broker: BrokerProcess, jobs: str, member: MakeMember
) -> None:
    earliest(share_broker, f"g-{jobs}", share_record_lock_duration_ms="1000")
    one = member(jobs)
    one.take(10)
    pass_s(1.0)
    assert one.acknowledge((0, 9, [RENEW]), is_renew_ack=True) == ErrorCode.INVALID_RECORD_STATE


def test_renewing_can_be_switched_off_and_has_rules(
    share_broker: BrokerProcess, jobs: str, member: MakeMember
) -> None:
    one = member(jobs)
    one.fetch()
    assert one.acknowledge((0, 0, [RENEW])) == ErrorCode.INVALID_REQUEST, "the request has to set the flag"
    refused = one.ask({0: [(0, 0, [RENEW])]}, is_renew_ack=True)
    assert refused.error_code == ErrorCode.INVALID_REQUEST, "a renewal fetches nothing"
    configure(share_broker, f"g-{jobs}", {"share.renew.acknowledge.enable": "false"})
    assert one.acknowledge((0, 0, [RENEW]), is_renew_ack=True) == ErrorCode.INVALID_REQUEST
    old = member(jobs, "m2", version=1)
    old.fetch()
    assert old.acknowledge((0, 0, [RENEW])) == ErrorCode.INVALID_REQUEST, "version 1 does not know it"


# -- sessions


def test_a_session_that_is_not_there_or_elsewhere_is_refused(jobs: str, member: MakeMember) -> None:
    one = member(jobs)
    assert one.ask(share_session_epoch=3).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert one.ask(share_session_epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert one.acknowledged({0: []}, share_session_epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert one.acknowledged({0: []}, share_session_epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    one.ask()
    assert one.ask(share_session_epoch=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert one.acknowledged({0: []}, share_session_epoch=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert one.ask().error_code == ErrorCode.NONE


def test_a_session_cannot_begin_with_acknowledgements(jobs: str, member: MakeMember) -> None:
    one = member(jobs)
    assert one.ask({0: [(0, 0, [ACCEPT])]}).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("group", "name"), [("", "m1"), (None, "m1"), ("g", ""), ("g", None), ("g", "m" * 37)])
def test_an_empty_member_id_is_refused(jobs: str, member: MakeMember, group: str | None, name: str | None) -> None:
    answer = member(jobs).ask(group_id=group, member_id=name)
    assert answer.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_GROUP_ID)
    assert answer.error_message


@pytest.mark.slow
def test_a_broker_remembers_only_so_many_sessions(own_broker: Callable[..., BrokerProcess], topic: str) -> None:
    broker = own_broker({"group.share.max.share.sessions": 1, "group.share.heartbeat.interval.ms": 100})
    ConfluentDriver(broker.kafka).create_topic(topic)
    one, two = (ShareMember(broker, "g", topic, name).join() for name in ("m1", "m2"))
    assert one.ask().error_code == ErrorCode.NONE
    assert two.ask().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    one.close_connection()
    wait_until(lambda: two.ask().error_code == ErrorCode.NONE, "a session that is over makes room")
    two.close_connection()


@pytest.mark.parametrize("by_fetch", [False, True])
def test_closing_a_session_releases_its_messages_without_counting_the_delivery(
    jobs: str, member: MakeMember, by_fetch: bool
) -> None:
    one, two = member(jobs), member(jobs, "m2")
    one.fetch()
    if by_fetch:
        assert one.fetch({0: [(0, 0, [ACCEPT])]}, share_session_epoch=-1)[0].acknowledge_error == ErrorCode.NONE
    else:
        assert one.acknowledge((0, 0, [ACCEPT]), share_session_epoch=-1) == ErrorCode.NONE
    assert one.ask(share_session_epoch=2).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert two.fetch(max_wait_ms=20_000)[0].acquired == [(1, 9, 1)]


def test_messages_of_a_disconnected_member_are_redelivered_at_once_and_counted(jobs: str, member: MakeMember) -> None:
    one, two = member(jobs), member(jobs, "m2")
    one.fetch()
    two.fetch()
    one.close_connection()
    assert two.fetch(max_wait_ms=20_000)[0].acquired == [(0, 9, 2)]


def test_an_acknowledgement_that_came_whole_counts_though_its_sender_is_gone(jobs: str, member: MakeMember) -> None:
    one, two = member(jobs), member(jobs, "m2")
    one.fetch()
    two.fetch()
    one.raw.send(one.acknowledging({0: [(0, 3, [ACCEPT]), (4, 4, [RELEASE])]}), one.version)
    one.close_connection()
    found: list[tuple[int, int, int]] = []

    def look() -> bool:
        found.extend(two.fetch(max_wait_ms=1000)[0].acquired)
        return len(offsets_of(found)) >= 6

    wait_until(look, "what it had comes back", seen=found)
    assert offsets_of(found) == [4, 5, 6, 7, 8, 9], "once each, and nothing that it had accepted"
    assert {count for _, _, count in found} == {2}


def test_half_an_acknowledgement_is_none(jobs: str, member: MakeMember) -> None:
    one, two = member(jobs), member(jobs, "m2")
    one.fetch()
    two.fetch()
    whole = one.acknowledging({0: [(0, 1, [ACCEPT])]})
    one.raw.send(whole, one.version)
    one.epoch += 1
    torn = b"".join(request_frame(one.acknowledging({0: [(2, 9, [ACCEPT])]}), one.version, 99, "raw"))
    one.raw.socket.sendall(torn[:-3])
    one.close_connection()
    assert two.fetch(max_wait_ms=20_000)[0].acquired == [(2, 9, 2)]


# -- what is refused


@pytest.mark.parametrize(
    "acks",
    [
        [(3, 2, [ACCEPT])],
        [(0, 3, [ACCEPT, ACCEPT])],
        [(0, 3, [])],
        [(0, 3, [5])],
        [(0, 3, [-1])],
        [(0, 3, [ACCEPT]), (3, 4, [ACCEPT])],
        [(4, 5, [ACCEPT]), (0, 1, [ACCEPT])],
    ],
)
def test_acknowledgements_that_make_no_sense_are_refused(
    jobs: str, member: MakeMember, acks: list[tuple[int, int, list[int]]]
) -> None:
    one = member(jobs)
    one.fetch()
    assert one.acknowledge(*acks) == ErrorCode.INVALID_REQUEST
    got = one.fetch({0: acks})
    assert got[0].acknowledge_error == ErrorCode.INVALID_REQUEST


def test_a_member_cannot_acknowledge_messages_that_it_has_not_acquired(jobs: str, member: MakeMember) -> None:
    one, two = member(jobs), member(jobs, "m2")
    one.fetch(max_records=5)
    two.fetch(max_records=1, share_acquire_mode=RECORD_LIMIT)
    assert two.acknowledge((0, 4, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert one.acknowledge((9, 9, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert one.acknowledge((0, 4, [ACCEPT])) == ErrorCode.NONE
    assert one.acknowledge((0, 4, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE, "it is finished"


def test_partitions_that_are_not_there_are_named(jobs: str, member: MakeMember) -> None:
    one = member(jobs)
    got = one.fetch(partitions=(0, 7))
    assert got[7].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert one.acknowledge((0, 0, [ACCEPT]), partition=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    one.topic_id = bytes(15) + b"\1"
    assert one.fetch(forget=(7,), partitions=(0,))[0].error == ErrorCode.UNKNOWN_TOPIC_ID
