"""Loops of the Python API whose group removes them while they wait: they join again, and go on.

While a loop waits for something, it pauses its partitions. librdkafka keeps a paused partition paused when it is
revoked and assigned again, so that it would never be fetched; see SubscriptionConsumer.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupType

import penstock
from penstock import AsyncConnection, Connection, Message, Outgoing
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.brokers import BrokerProcess

from .api_lab import QUICK, all_of, committed, connect, new_group, new_topic
from .driver_confluent import ConfluentDriver
from .raw import RawClient
from .waiting import PATIENCE_S, wait_until

COUNT = 20
REMOVED_AT = 5
NEVER_S = 3600.0
"""A retry after so long: only a member that has joined again sees the message once more."""
LOOP_S = 60.0
"""A loop that does not end by then hangs."""
LEAVE_EPOCH = -1
PROTOCOLS: dict[str, dict[str, Any]] = {
    "cooperative": QUICK,
    "eager": {**QUICK, "partition.assignment.strategy": "range"},
    "consumer": {"group.protocol": "consumer", "fetch.wait.max.ms": 50},
}
OF_TASKS = [pytest.param(name, marks=[] if name == "eager" else [pytest.mark.slow]) for name in PROTOCOLS]
"""Loops of tasks pause and resume by the same code as those of threads, which are tested with every protocol."""


def remove_members(broker: BrokerProcess, group: str) -> None:
    """Removes every member of a group, as if they had left: they hear of it with their next heartbeat."""
    admin = ConfluentDriver(broker.kafka).admin
    found = admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
    assert found.members
    with RawClient(broker.address) as raw:
        for member in found.members:
            if found.type is ConsumerGroupType.CONSUMER:
                leave = ConsumerGroupHeartbeatRequest(
                    group_id=group, member_id=member.member_id, member_epoch=LEAVE_EPOCH
                )
                assert raw.ask(leave, 1).error_code == 0
            else:
                identity = MemberIdentity(member_id=member.member_id, group_instance_id=None)
                assert raw.ask(LeaveGroupRequest(group_id=group, members=[identity]), 5).error_code == 0


class Case:
    """What the body of one loop does. Its member is removed in the middle, while the loop has to wait."""

    options: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, broker: BrokerProcess, group: str, is_lost: Callable[[], bool]) -> None:
        self.broker = broker
        self.group = group
        self.is_lost = is_lost
        self.seen: list[int] = []
        self.is_removed = False

    def handle(self, message: Message) -> bool:
        """Whether the loop has had everything."""
        self.seen.append(message.json())
        if self.is_time(message):
            self.is_removed = True
            remove_members(self.broker, self.group)
            self.wait_in_vain(message)
        if set(self.seen) != set(range(COUNT)):
            return False
        message.done()
        return True

    def is_time(self, message: Message) -> bool:
        return message.json() == REMOVED_AT and not self.is_removed

    def wait_in_vain(self, message: Message) -> None:
        """See that the loop waits until its member is known to be removed."""

    def check(self) -> None:
        assert set(self.seen) == set(range(COUNT))


class Retrying(Case):
    """At least once: the loop waits for a retry that is not due."""

    def wait_in_vain(self, message: Message) -> None:
        message.retry(delay_s=NEVER_S)


class CommittingFirst(Case):
    """At most once: the loop waits until the next message can be committed."""

    options = MappingProxyType({"delivery": "at-most-once", "prefetch": 1})

    def check(self) -> None:
        assert self.seen == list(range(COUNT))


class InFlight(Case):
    """At least once, several in flight: the loop waits for one to be finished, by another thread."""

    options = MappingProxyType({"max_in_flight": REMOVED_AT + 1})

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._held: list[Message] = []

    def handle(self, message: Message) -> bool:
        self._held.append(message)
        is_over = super().handle(message)
        if self.is_removed:
            while not self._finisher.is_alive() and self._held:
                self._held.pop().done()
        return is_over

    def wait_in_vain(self, message: Message) -> None:
        self._finisher = threading.Thread(target=self._finish)
        self._finisher.start()

    def _finish(self) -> None:
        wait_until(self.is_lost, "the member to hear that it was removed", timeout_s=LOOP_S)
        for message in self._held:
            message.done()


CASES = [Retrying, CommittingFirst, InFlight]


@pytest.fixture
def is_lost(caplog: pytest.LogCaptureFixture) -> Callable[[], bool]:
    """Whether a loop has heard that its partitions are lost."""
    return lambda: any("partitions_lost" in record.getMessage() for record in caplog.records)


@pytest.fixture
def source(group_broker: BrokerProcess) -> str:
    topic = new_topic(group_broker.kafka)
    with connect(group_broker.kafka) as mq:
        mq.publish_many(topic, [Outgoing(number, partition=0) for number in range(COUNT)])
    return topic


def run_sync(broker: BrokerProcess, protocol: str, use: Callable[[Connection], Any]) -> None:
    """Closes a loop that hangs, so that it ends, and the test says what is missing."""
    with penstock.connect(broker.kafka, options=PROTOCOLS[protocol]) as mq:
        watchdog = threading.Timer(LOOP_S, mq.close)
        watchdog.start()
        try:
            use(mq)
        finally:
            watchdog.cancel()
            watchdog.join()


def run_async(broker: BrokerProcess, protocol: str, use: Callable[[AsyncConnection], Any]) -> None:
    async def main() -> None:
        async with asyncio.timeout(LOOP_S), penstock.connect_async(broker.kafka, options=PROTOCOLS[protocol]) as mq:
            await use(mq)

    asyncio.run(main())


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_loop_whose_member_was_removed_joins_again_and_goes_on(
    group_broker: BrokerProcess, source: str, is_lost: Callable[[], bool], kind: type[Case], protocol: str
) -> None:
    case = kind(group_broker, new_group(), is_lost)

    def use(mq: Connection) -> None:
        with mq.subscribe(source, group=case.group, **case.options) as loop:
            for message in loop:
                if case.handle(message):
                    break

    run_sync(group_broker, protocol, use)
    case.check()
    assert is_lost()
    assert committed(group_broker, case.group, source) == COUNT


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("protocol", OF_TASKS)
def test_a_loop_of_a_task_whose_member_was_removed_joins_again_and_goes_on(
    group_broker: BrokerProcess, source: str, is_lost: Callable[[], bool], kind: type[Case], protocol: str
) -> None:
    case = kind(group_broker, new_group(), is_lost)

    async def use(mq: AsyncConnection) -> None:
        async with mq.subscribe(source, group=case.group, **case.options) as loop:
            async for message in loop:
                if await asyncio.to_thread(case.handle, message):
                    break

    run_async(group_broker, protocol, use)
    case.check()
    assert is_lost()
    assert committed(group_broker, case.group, source) == COUNT


RETRY_S = 2.0
"""Long enough to hear of the removal meanwhile; if not, the test shows less, and still passes."""


class ExactlyOnceCase(Case):
    """The loop waits before the messages of an aborted transaction are delivered again."""

    def wait_in_vain(self, message: Message) -> None:
        message.retry(delay_s=RETRY_S)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_exactly_once_loop_whose_member_was_removed_processes_every_message_once(
    group_broker: BrokerProcess, source: str, is_lost: Callable[[], bool], protocol: str
) -> None:
    """`limit` counts a message once, however often its transaction is aborted."""
    target = new_topic(group_broker.kafka)
    case = ExactlyOnceCase(group_broker, new_group(), is_lost)

    def use(mq: Connection) -> None:
        with mq.exactly_once(source, group=case.group, batch=10, limit=COUNT) as loop:
            for message in loop:
                loop.publish(target, message.json())
                case.handle(message)

    run_sync(group_broker, protocol, use)
    with connect(group_broker.kafka) as mq:
        assert all_of(mq, target) == list(range(COUNT))
    assert committed(group_broker, case.group, source) == COUNT


@pytest.mark.parametrize("protocol", OF_TASKS)
def test_an_exactly_once_loop_of_a_task_whose_member_was_removed_processes_every_message_once(
    group_broker: BrokerProcess, source: str, is_lost: Callable[[], bool], protocol: str
) -> None:
    target = new_topic(group_broker.kafka)
    case = ExactlyOnceCase(group_broker, new_group(), is_lost)

    async def use(mq: AsyncConnection) -> None:
        async with mq.exactly_once(source, group=case.group, batch=10, limit=COUNT) as loop:
            async for message in loop:
                await loop.publish(target, message.json())
                await asyncio.to_thread(case.handle, message)

    run_async(group_broker, protocol, use)
    with connect(group_broker.kafka) as mq:
        assert all_of(mq, target) == list(range(COUNT))
    assert committed(group_broker, case.group, source) == COUNT
