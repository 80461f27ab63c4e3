"""Errors of a group coordinator for invalid requests, which must not disturb other members."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.join_group import JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.brokers import BrokerProcess

from .conftest import QUICK_GROUPS
from .driver_confluent import ConfluentDriver
from .drivers import refused
from .group_members import CLASSIC, crew, places_of
from .raw import RawClient
from .raw_members import RawMember, assignment_of, find_coordinator, join_request
from .test_groups import PARTITIONS, numbered
from .waiting import wait_until

Arrive = Callable[..., RawMember]


@pytest.fixture
def group(topic: str) -> str:
    return f"{topic}-group"


@pytest.fixture
def arrive(group_broker: BrokerProcess, topic: str, group: str) -> Iterator[Arrive]:
    """Connects members of one group; they have not joined yet. Their topic has one partition."""
    ConfluentDriver(group_broker.kafka).create_topic(topic)
    with ExitStack() as open_ones:

        def connect(**options: Any) -> RawMember:
            member = open_ones.enter_context(RawMember(group_broker.address, group, topic, **options))
            find_coordinator(member.raw, group)
            return member

        yield connect


@pytest.fixture
def member(arrive: Arrive) -> RawMember:
    """The only member of a stable group."""
    return stable(arrive())


def stable(member: RawMember) -> RawMember:
    assert member.join() is ErrorCode.NONE
    assert member.sync() is ErrorCode.NONE
    return member


def state_of(raw: RawClient, group: str) -> str:
    (found,) = raw.ask(DescribeGroupsRequest(groups=[group]), 5).groups
    return found.group_state


# -- member ids and generations


def test_a_client_that_is_not_a_member_gets_unknown_member_id(member: RawMember, arrive: Arrive) -> None:
    stranger = arrive()
    stranger.member_id, stranger.generation = "stranger", member.generation
    for ask in (stranger.join, stranger.sync, stranger.heartbeat, stranger.commit, stranger.leave):
        assert ask() is ErrorCode.UNKNOWN_MEMBER_ID, ask
    assert member.heartbeat() is ErrorCode.NONE


def test_a_missing_group_has_no_members(arrive: Arrive) -> None:
    stranger = arrive()
    stranger.member_id, stranger.generation = "stranger", 1
    for ask in (stranger.join, stranger.sync, stranger.heartbeat, stranger.leave):
        assert ask() is ErrorCode.UNKNOWN_MEMBER_ID, ask
    assert stranger.commit() is ErrorCode.GROUP_ID_NOT_FOUND
    assert stranger.commit(version=8) is ErrorCode.ILLEGAL_GENERATION, "older clients do not know the other code here"
    assert state_of(stranger.raw, stranger.group) == "Dead"


@pytest.mark.parametrize("by", [-1, 1])
def test_a_member_of_another_generation_gets_illegal_generation(member: RawMember, by: int) -> None:
    now = member.generation
    member.generation += by
    for ask in (member.sync, member.heartbeat, member.commit):
        assert ask() is ErrorCode.ILLEGAL_GENERATION, ask
    member.generation = now
    for ask in (member.sync, member.heartbeat, member.commit):
        assert ask() is ErrorCode.NONE, ask


def test_a_member_whose_instance_id_was_taken_over_is_fenced(arrive: Arrive) -> None:
    """KIP-345: the last member with an instance id fences the others."""
    older = stable(arrive(instance_id="same"))
    newer = arrive(instance_id="same")
    assert newer.join() is ErrorCode.NONE
    assert newer.member_id != older.member_id
    for ask in (older.join, older.sync, older.heartbeat, older.commit, older.leave):
        assert ask() is ErrorCode.FENCED_INSTANCE_ID, ask
    assert newer.sync({}) is ErrorCode.NONE
    assert newer.heartbeat() is ErrorCode.NONE
    assert newer.commit() is ErrorCode.NONE


def test_an_unused_instance_id_is_unknown(member: RawMember) -> None:
    assert member.heartbeat(group_instance_id="unused") is ErrorCode.UNKNOWN_MEMBER_ID
    assert member.commit(group_instance_id="unused") is ErrorCode.UNKNOWN_MEMBER_ID
    assert member.leave(group_instance_id="unused") is ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_of_a_former_member_are_refused(arrive: Arrive) -> None:
    gone = stable(arrive())
    assert gone.leave() is ErrorCode.NONE
    assert gone.commit() is ErrorCode.UNKNOWN_MEMBER_ID
    lost = stable(arrive(session_ms=200))
    wait_until(lambda: state_of(lost.raw, lost.group) == "Empty", "the silent member is removed")
    assert lost.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert lost.commit() is ErrorCode.UNKNOWN_MEMBER_ID
    assert lost.commit(member_id="", generation_id_or_member_epoch=-1) is ErrorCode.NONE, "an administrator may"


def test_only_members_commit_while_there_are_some(member: RawMember, arrive: Arrive) -> None:
    outsider = arrive()
    assert outsider.commit() is ErrorCode.UNKNOWN_MEMBER_ID


# -- when


def test_during_a_rebalance_heartbeats_make_members_join_again(member: RawMember, arrive: Arrive) -> None:
    other = arrive()
    other.ask_to_join()
    wait_until(lambda: member.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "the rebalance has begun")
    assert member.sync() is ErrorCode.REBALANCE_IN_PROGRESS
    assert member.commit() is ErrorCode.NONE, "what was read may still be committed"
    before = member.generation
    assert member.join() is ErrorCode.NONE
    assert other.joined().error_code == ErrorCode.NONE
    assert (member.generation, other.generation) == (before + 1, before + 1)
    assert member.commit() is ErrorCode.REBALANCE_IN_PROGRESS, "no member has an assignment yet"
    leader, follower = (member, other) if member.leads else (other, member)
    follower.ask_to_sync({})
    assert leader.sync({follower.member_id: assignment_of(leader.topic, [0])}) is ErrorCode.NONE
    answer = follower.raw.receive()
    assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, assignment_of(leader.topic, [0]))


# -- what


@pytest.mark.parametrize(("size", "code"), [(4096, ErrorCode.NONE), (4097, ErrorCode.OFFSET_METADATA_TOO_LARGE)])
def test_text_that_is_committed_has_a_bound(member: RawMember, size: int, code: ErrorCode) -> None:
    """offset.metadata.max.bytes, which Kafka counts in characters."""
    assert member.commit(metadata="x" * size) is code
    assert member.commit(metadata="é" * size) is code
    assert member.commit(metadata=None) is ErrorCode.NONE


def test_a_library_shows_that_the_text_is_too_long(group_broker: BrokerProcess, topic: str) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic)
    with (
        driver.consumer(group_id=f"{topic}-group") as consumer,
        refused(driver, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ):
        consumer.commit(offsets=[TopicPartition(topic, 0, 1, "x" * 5000)], asynchronous=False)


def test_offsets_of_a_topic_that_is_not_there_are_refused(member: RawMember) -> None:
    assert member.commit(topic="nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_group_needs_a_name(arrive: Arrive) -> None:
    nameless = arrive()
    nameless.group, nameless.member_id = "", "member"
    for ask in (nameless.join, nameless.sync, nameless.heartbeat, nameless.leave):
        assert ask() is ErrorCode.INVALID_GROUP_ID, ask
    # As with Kafka, a client that is not a member may commit with an empty member id.
    assert nameless.commit(member_id="", generation_id_or_member_epoch=-1) is ErrorCode.NONE


@pytest.mark.parametrize("name", ["a b", "snö", "x" * 300, "\t", "/../../etc", "."])
def test_any_other_name_is_good(group_broker: BrokerProcess, topic: str, name: str) -> None:
    ConfluentDriver(group_broker.kafka).create_topic(topic)
    with RawMember(group_broker.address, f"{name}-{topic}", topic) as member:
        find_coordinator(member.raw, member.group)
        stable(member)
        assert member.commit(offset=7) is ErrorCode.NONE
        assert state_of(member.raw, member.group) == "Stable"


@pytest.mark.parametrize(("session_ms", "code"), [(99, True), (100, False), (1_800_000, False), (1_800_001, True)])
def test_session_timeouts_have_bounds(arrive: Arrive, session_ms: int, code: bool) -> None:
    answer = arrive().raw.ask(join_request("bounds", "any", session_ms=session_ms), 9)
    assert answer.error_code == (ErrorCode.INVALID_SESSION_TIMEOUT if code else ErrorCode.MEMBER_ID_REQUIRED)


def test_members_must_agree_on_how_they_work(member: RawMember, arrive: Arrive) -> None:
    def joining(**options: Any) -> int:
        return other.raw.ask(join_request(other.group, other.topic, **options), 9).error_code

    other = arrive()
    assert joining(protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert joining(protocols=("sticky",)) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert joining(protocols=()) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert joining(protocols=("sticky", "range")) == ErrorCode.MEMBER_ID_REQUIRED
    assert member.sync(protocol_name="sticky") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert member.sync(protocol_type="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert member.heartbeat() is ErrorCode.NONE


@pytest.mark.parametrize("options", [{"protocol_type": ""}, {"protocols": ()}], ids=str)
def test_the_first_member_must_say_how_it_works(arrive: Arrive, options: dict[str, Any]) -> None:
    answer = arrive().raw.ask(join_request("undecided", "any", **options), 9)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_library_with_another_assignor_gets_inconsistent_protocol(group_broker: BrokerProcess, topic: str) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, 2)
    with crew(group_broker.kafka, f"{topic}-group", topics=(topic,)) as members:
        members.join("confluent-classic", assignor="range")
        members.wait_for_balance(places_of(topic, 2))
        other = members.join("kafka-python", assignor="roundrobin")
        with pytest.raises(AssertionError, match="InconsistentGroupProtocol"):
            wait_until(lambda: other.check() or not other.is_alive(), "the other one gets the error")
        members.forget(other)
        members.wait_for_balance(places_of(topic, 2))


def test_a_full_group_turns_others_away(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker(QUICK_GROUPS | {"group.max.size": 2, "group.consumer.max.size": 1})
    ConfluentDriver(broker.kafka).create_topic("orders", 2)
    for kind, size in (("confluent-classic", 2), ("confluent-consumer", 1)):
        with crew(broker.kafka, f"{kind}-group", topics=("orders",)) as members:
            for _ in range(size):
                members.join(kind)
            members.wait_for_balance(places_of("orders", 2))
            extra = members.join(kind)
            with pytest.raises(AssertionError, match=r"(?i)max.*size|maximum"):
                wait_until(lambda extra=extra: extra.check() or not extra.is_alive(), "one too many")
            members.forget(extra)


def test_every_answer_of_a_batch_of_leaves_is_its_own(member: RawMember, arrive: Arrive) -> None:
    other = arrive(instance_id="named")
    other.ask_to_join()
    wait_until(lambda: member.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "the rebalance has begun")
    wanted = [
        MemberIdentity(member_id="stranger"),
        MemberIdentity(member_id="", group_instance_id="named"),
        MemberIdentity(member_id="", group_instance_id="unused"),
    ]
    answer = arrive().raw.ask(LeaveGroupRequest(group_id=member.group, members=wanted), 5)
    assert answer.error_code == ErrorCode.NONE
    assert [one.error_code for one in answer.members] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert other.joined().error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("kind", [3, -1, 99])
def test_there_are_coordinators_of_groups_and_transactions_only(group_raw: RawClient, kind: int) -> None:
    (found,) = group_raw.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=["key"]), 4).coordinators
    assert found.error_code == ErrorCode.INVALID_REQUEST


# -- one bad member never wedges a group

SHORT = {"session_ms": 500, "rebalance_ms": 500}


def check_not_wedged(arrive: Arrive) -> None:
    """A good member that joins now soon gets all partitions, though the others do not cooperate."""
    began_s = time.monotonic()
    good = arrive(**SHORT)
    while True:
        code = good.join()
        assert code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS), code
        if code is ErrorCode.NONE and good.leads and good.sync() is ErrorCode.NONE:
            break
    assert good.heartbeat() is ErrorCode.NONE
    assert time.monotonic() - began_s < 60


def test_a_member_that_never_joins_with_its_id_is_forgotten(arrive: Arrive) -> None:
    bad = arrive(**SHORT)
    bad.get_id()
    check_not_wedged(arrive)


def test_a_leader_that_never_shares_out_is_removed(arrive: Arrive) -> None:
    bad = arrive(**SHORT)
    assert bad.join() is ErrorCode.NONE
    assert bad.leads
    check_not_wedged(arrive)
    assert bad.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_never_joins_again_is_removed(arrive: Arrive) -> None:
    bad = stable(arrive(**SHORT))
    check_not_wedged(arrive)
    assert bad.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_only_sends_heartbeats_is_removed_when_time_is_up(arrive: Arrive) -> None:
    """It sends heartbeats, and does not join again when it has to."""
    bad = stable(arrive(session_ms=10_000, rebalance_ms=500))
    good = arrive(**SHORT)
    good.ask_to_join()
    wait_until(lambda: bad.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID, "it is removed")
    assert good.joined().error_code == ErrorCode.NONE
    assert good.leads
    assert good.sync() is ErrorCode.NONE


def test_a_member_that_disconnects_while_it_waits_does_not_delay_the_others(arrive: Arrive) -> None:
    first = stable(arrive(**SHORT))
    bad = arrive(**SHORT)
    bad.ask_to_join()
    wait_until(lambda: first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "the rebalance has begun")
    bad.raw.socket.close()
    check_not_wedged(arrive)


def test_a_member_that_disconnects_while_it_joins_is_not_admitted(
    group_broker: BrokerProcess, arrive: Arrive
) -> None:
    """The others would have to miss it for a session before they could share out what it got."""
    first = stable(arrive())
    bad = arrive(session_ms=500)
    bad.ask_to_join()
    wait_until(lambda: first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "the rebalance has begun")
    connections = group_broker.metric("penstock_connections")
    bad.raw.socket.close()
    wait_until(lambda: group_broker.metric("penstock_connections") < connections, "the broker has seen it go")
    first.ask_to_join()
    joined = first.joined()
    assert [member.member_id for member in joined.members] == [first.member_id]


def test_a_follower_that_never_syncs_is_removed(arrive: Arrive) -> None:
    leader = stable(arrive(**SHORT))
    bad = arrive(session_ms=10_000, rebalance_ms=500)
    bad.ask_to_join()
    wait_until(lambda: leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "the rebalance has begun")
    assert leader.join() is ErrorCode.NONE
    assert bad.joined().error_code == ErrorCode.NONE
    assert leader.sync() is ErrorCode.NONE
    wait_until(lambda: leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "it is removed")
    assert leader.join() is ErrorCode.NONE
    assert leader.sync() is ErrorCode.NONE


@pytest.mark.parametrize("bytes_", [b"", b"\x00", b"\xff" * 40, bytes(1000)], ids=["none", "half", "ones", "zeros"])
def test_subscriptions_and_assignments_may_be_any_bytes(
    group_broker: BrokerProcess, arrive: Arrive, topic: str, bytes_: bytes
) -> None:
    """Subscriptions and assignments that cannot be decoded: the group works, and can be looked at."""
    odd = arrive()
    request = join_request(odd.group, topic)
    odd_protocols = [JoinGroupRequestProtocol(name="range", metadata=bytes_)]

    def asked(member_id: str) -> Any:
        fields = {name: getattr(request, name) for name in type(request).__annotations__}
        return type(request)(**{**fields, "member_id": member_id, "protocols": odd_protocols})

    odd.member_id = odd.raw.ask(asked(""), 9).member_id
    odd.raw.send(asked(odd.member_id), 9)
    assert odd.joined().error_code == ErrorCode.NONE
    assert odd.sync({odd.member_id: bytes_}) is ErrorCode.NONE
    assert odd.commit() is ErrorCode.NONE
    (found,) = odd.raw.ask(DescribeGroupsRequest(groups=[odd.group]), 5).groups
    assert (found.group_state, found.members[0].member_assignment) == ("Stable", bytes_)
    ConfluentDriver(group_broker.kafka).create_topic(f"{topic}-new")  # makes the coordinator look at subscriptions
    assert odd.heartbeat() is ErrorCode.NONE


@pytest.mark.parametrize("kind", CLASSIC)
def test_libraries_go_on_beside_one_that_is_silent(
    group_broker: BrokerProcess, arrive: Arrive, topic: str, group: str, kind: str
) -> None:
    """It has joined, holds everyone up, and is never heard of again."""
    driver = ConfluentDriver(group_broker.kafka)
    other = f"{topic}-other"
    driver.create_topic(other, PARTITIONS)
    silent = stable(arrive(session_ms=1000, rebalance_ms=1000))
    with crew(group_broker.kafka, group, topics=(other,), session_ms=1000) as members:
        for _ in range(2):
            members.join(kind)
        members.wait_for_balance(places_of(other, PARTITIONS))
        driver.produce(other, numbered(60))
        members.wait_for(60)
    assert members.got() == {b"%d" % number: 1 for number in range(60)}
    assert silent.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
