"""Consumer groups whose members all subscribe to other topics: assigning takes long, and does not delay others."""

from collections.abc import Callable, Sequence
from random import Random

import pytest

from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.brokers import BrokerProcess
from tests.clients.raw import RawClient
from tests.clients.waiting import wait_until

from .conftest import print_worst
from .full_broker import find_coordinator
from .probe import Probe

SIZES = [pytest.param(60, 100, id="60-100"), pytest.param(1000, 1000, id="1000-1000", marks=pytest.mark.slow)]
PARTITIONS = 5
WAIT_S = 300.0


def create_all(raw: RawClient, names: Sequence[str]) -> None:
    wanted = [
        CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    assert not any(topic.error_code for topic in raw.ask(CreateTopicsRequest(topics=wanted), 7).topics)


@pytest.mark.parametrize(("members", "topics"), SIZES)
@pytest.mark.parametrize("assignor", [pytest.param("uniform", marks=pytest.mark.slow), "range"])
def test_members_with_other_subscriptions_do_not_hold_the_loop(
    members: int, topics: int, assignor: str, own_target: Callable[..., BrokerProcess]
) -> None:
    target = own_target()
    probe = Probe(target)
    names = [f"topic-{number:04}" for number in range(topics)]
    rng = Random(17)
    epochs: dict[int, int] = {}
    owned: dict[int, int] = {}

    def beat(raw: RawClient, member: int) -> bool:
        """Whether the member has all that it will have for now."""
        is_new = member not in epochs
        request = ConsumerGroupHeartbeatRequest(
            group_id="readers",
            member_id=f"member-{member:015}",
            member_epoch=epochs.get(member, 0),
            rebalance_timeout_ms=240_000 if is_new else -1,
            subscribed_topic_names=rng.sample(names, rng.randint(1, topics - 1)) if is_new else None,
            server_assignor=assignor if is_new else None,
            topic_partitions=[] if is_new or not owned.get(member) else None,
        )
        answer = raw.ask(request, 1)
        assert answer.error_code == 0, answer
        is_same = epochs.get(member) == answer.member_epoch
        epochs[member] = answer.member_epoch
        if answer.assignment is not None:
            owned[member] = sum(len(topic.partitions) for topic in answer.assignment.topic_partitions)
        return is_same and answer.heartbeat_interval_ms > 1000

    with RawClient(target.address) as raw:
        raw.socket.settimeout(WAIT_S)
        create_all(raw, names)
        find_coordinator(raw, "readers", 0)
        with probe.watch(f"{members:,} members of {topics:,} topics, {assignor}: joined"):
            for member in range(members):
                beat(raw, member)
        with probe.watch(f"{members:,} members of {topics:,} topics, {assignor}: assigned"):
            wait_until(lambda: beat(raw, 0), "the first member has its partitions", WAIT_S)
    assert owned[0]
    print_worst(probe)


SHARE_SIZES = [pytest.param(20, 100, id="20-100"), pytest.param(200, 1000, id="200-1000", marks=pytest.mark.slow)]


@pytest.mark.parametrize(("members", "topics"), SHARE_SIZES)
def test_share_members_with_other_subscriptions_do_not_hold_the_loop(
    members: int, topics: int, own_target: Callable[..., BrokerProcess]
) -> None:
    target = own_target()
    probe = Probe(target)
    names = [f"topic-{number:04}" for number in range(topics)]
    rng = Random(17)
    owned: list[int] = []

    def beat(raw: RawClient, member: int, epoch: int) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id="workers",
            member_id=f"member-{member}",
            member_epoch=epoch,
            subscribed_topic_names=None if epoch else rng.sample(names, rng.randint(1, topics - 1)),
        )
        answer: ShareGroupHeartbeatResponse = raw.ask(request, 1)
        assert answer.error_code == 0, answer
        if member == 0 and answer.assignment is not None:
            owned[:] = [number for topic in answer.assignment.topic_partitions for number in topic.partitions]
        return answer

    with RawClient(target.address) as raw:
        raw.socket.settimeout(WAIT_S)
        create_all(raw, names)
        find_coordinator(raw, "workers", 0)
        with probe.watch(f"{members:,} share members of {topics:,} topics: joined"):
            epochs = [beat(raw, member, 0).member_epoch for member in range(members)]

        def is_assigned() -> bool:
            epochs[0] = beat(raw, 0, epochs[0]).member_epoch
            return bool(owned)

        with probe.watch(f"{members:,} share members of {topics:,} topics: assigned"):
            wait_until(is_assigned, "the first member has its partitions", WAIT_S)
    print_worst(probe)
