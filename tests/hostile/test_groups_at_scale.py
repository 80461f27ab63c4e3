"""Fetch sessions with thousands of partitions, and consumer groups with hundreds of members that share them out."""

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.brokers import BrokerProcess
from tests.clients.raw import FETCH_VERSION, RawClient, batch_of, fetch_request
from tests.clients.waiting import wait_until

from .conftest import print_worst
from .full_broker import WIDE, FullBroker, find_coordinator
from .probe import Probe

SIZES = [pytest.param(1000, 50, id="1000-50"), pytest.param(10_000, 1000, id="10000-1000", marks=pytest.mark.slow)]
SUBSCRIPTION = b"\0\0\0\0\0\1\0\4wide\xff\xff\xff\xff"


@pytest.mark.parametrize(("count", "members"), SIZES)
def test_large_fetch_sessions_and_groups_do_not_hold_the_loop(
    count: int, members: int, own_target: Callable[..., BrokerProcess]
) -> None:
    target = own_target()
    probe = Probe(target)
    broker = FullBroker(target, count)
    broker.add_partitions()
    with broker.connect() as raw:
        wait_until(lambda: raw.fetch(WIDE, 0, partition=count - 1).error_code == 0, "the last partition is open")
        _fetch(probe, raw, broker)
        find_coordinator(raw, "readers", 0)
    _share_out(probe, broker, members)
    _rebalance(probe, broker, members)
    print_worst(probe)


def _fetch(probe: Probe, raw: RawClient, broker: FullBroker) -> None:
    count = broker.count
    with probe.watch(f"fetch session of {count:,}: opened"):
        opened = raw.ask(fetch_request(WIDE, dict.fromkeys(range(count), 0), session_epoch=0), FETCH_VERSION)
        assert opened.session_id
    with broker.connect() as other, probe.watch(f"fetch session of {count:,}: waits and is woken"):
        read: dict[int, int] = {}
        for epoch, number in enumerate((0, count // 2, count - 1), 1):
            session = {"session_id": opened.session_id, "session_epoch": epoch}
            raw.send(fetch_request(WIDE, read, max_wait_ms=120_000, **session), FETCH_VERSION)
            assert other.produce(WIDE, batch_of([b"x"]), partition=number).error_code == 0
            answer = raw.receive()
            assert [found.partition_index for topic in answer.responses for found in topic.partitions] == [number]
            read = {number: 1}


def _share_out(probe: Probe, broker: FullBroker, members: int) -> None:
    """The consumer protocol (KIP-848): the coordinator assigns."""
    epochs, owned = dict.fromkeys(range(members), 0), dict[int, list[TopicPartitions]]()

    def beat(raw: RawClient, member: int) -> None:
        is_new = not epochs[member]
        request = ConsumerGroupHeartbeatRequest(
            group_id="readers",
            member_id=f"member-{member:015}",
            member_epoch=epochs[member],
            rebalance_timeout_ms=120_000 if is_new else -1,
            subscribed_topic_names=[WIDE] if is_new else None,
            topic_partitions=[] if is_new else owned.get(member),
        )
        answer = raw.ask(request, 1)
        assert answer.error_code == 0, answer
        epochs[member] = answer.member_epoch
        if answer.assignment is not None:
            owned[member] = [
                TopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions)
                for topic in answer.assignment.topic_partitions
            ]

    with broker.connect() as raw:
        with probe.watch(f"consumer group of {members:,} members: joined"):
            for member in range(members):
                beat(raw, member)
        with probe.watch(f"consumer group of {members:,} members: reconciled"):
            for _ in range(4):
                for member in range(members):
                    beat(raw, member)
    assert sum(len(topic.partitions) for topics in owned.values() for topic in topics) == broker.count


def _rebalance(probe: Probe, broker: FullBroker, members: int) -> None:
    """The classic protocol: the members' leader assigns."""

    def join(member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="classic",
            session_timeout_ms=120_000,
            rebalance_timeout_ms=120_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )

    with ExitStack() as stack, probe.watch(f"classic group of {members:,} members: rebalanced"):
        raws = [stack.enter_context(broker.connect()) for _ in range(members)]
        ids = [raw.ask(join(""), 5).member_id for raw in raws]
        for raw, member_id in zip(raws, ids, strict=True):
            raw.send(join(member_id), 5)
        answers = [raw.receive() for raw in raws]
        assert max(len(answer.members) for answer in answers) == members
        share = bytes(4 * broker.count // members + 20)
        assigned = [SyncGroupRequestAssignment(member_id=member_id, assignment=share) for member_id in ids]
        for raw, member_id, answer in zip(raws, ids, answers, strict=True):
            sync = SyncGroupRequest(
                group_id="classic",
                generation_id=answer.generation_id,
                member_id=member_id,
                assignments=assigned if member_id == answer.leader else [],
            )
            raw.send(sync, 3)
        assert {raw.receive().error_code for raw in raws} == {0}
