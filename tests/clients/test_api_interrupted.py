"""Loops of the Python API while their broker is stopped, killed or slow: they go on when it is back.

Each fault lasts longer than the session timeout, so that members are given up, and messages are delivered again.
"""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import ShareConsumer

import penstock
from penstock import AsyncConnection, Connection, Message, TransactionAborted
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from tests.brokers import BrokerProcess

from .api_lab import KILLED, all_of, connect, new_group, new_topic
from .conftest import QUICK_GROUPS, QUICK_SHARING
from .driver_confluent import QUIET
from .proxy import LossyProxy
from .queue_lab import new_name
from .share_raw import earliest
from .waiting import wait_until

COUNT = 30
STRIKE_AT = 12
SESSION_S = 1.0
FAULT_S = 2.5 * SESSION_S
LOOP_S = 90.0
"""A loop that does not end by then hangs."""
SOON_BACK = {"reconnect.backoff.max.ms": 500}
"""librdkafka waits up to ten seconds before it connects again, which is not what is tested here."""
CLASSIC = {**KILLED, **SOON_BACK, "session.timeout.ms": int(SESSION_S * 1000)}
CONSUMER = {**SOON_BACK, "group.protocol": "consumer", "fetch.wait.max.ms": 50}
SETTINGS = {**QUICK_GROUPS, "group.consumer.session.timeout.ms": int(SESSION_S * 1000)}
PROTOCOLS = {"classic": CLASSIC, "consumer": CONSUMER}


class Place:
    """A broker behind a proxy, and what can happen to it. `strike` begins a fault, which ends by itself."""

    def __init__(self, start: Callable[..., BrokerProcess], settings: Mapping[str, object]) -> None:
        self.proxy = LossyProxy()
        self.broker = start(dict(settings), advertise=self.proxy.address)
        self.proxy.broker = self.broker.address
        self._ending: threading.Timer | None = None

    @property
    def servers(self) -> str:
        return self.proxy.address

    def strike(self, fault: str) -> None:
        if self._ending is not None:
            return  # once is enough
        begin, end = {
            "stopped": (lambda: self._signal(signal.SIGSTOP), lambda: self._signal(signal.SIGCONT)),
            "killed": (self.broker.kill, self.broker.start),
            "silent": (self.proxy.hold_answers, self.proxy.release_answers),
        }[fault]
        begin()
        self._ending = threading.Timer(FAULT_S, end)
        self._ending.start()

    @property
    def is_over(self) -> bool:
        return self._ending is not None and not self._ending.is_alive()

    def _signal(self, number: signal.Signals) -> None:
        os.kill(self.broker.pid, number)

    def close(self) -> None:
        if self._ending is not None:
            self._ending.join()
        self.proxy.close()


FAULTS = ["stopped", "killed", "silent"]
SLOW = pytest.mark.slow


@pytest.fixture
def place(own_broker: Callable[..., BrokerProcess]) -> Iterator[Place]:
    found = Place(own_broker, SETTINGS)
    yield found
    found.close()


@pytest.fixture
def source(place: Place) -> str:
    topic = new_topic(place.servers)
    with connect(place.servers) as mq:
        mq.publish_many(topic, range(COUNT))
    return topic


def watched(mq: Connection, use: Callable[[], Any]) -> None:
    """Closes a connection whose loop hangs, so that the loop ends, and the test says what is missing."""
    watchdog = threading.Timer(LOOP_S, mq.close)
    watchdog.start()
    try:
        use()
    finally:
        watchdog.cancel()
        watchdog.join()


# -- groups


def finish(message: Message) -> None:
    with contextlib.suppress(penstock.Closed):  # the loop has had enough meanwhile
        message.done()


@pytest.mark.parametrize("fault", [pytest.param("stopped", marks=SLOW), "killed", pytest.param("silent", marks=SLOW)])
@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=SLOW)])
def test_an_exactly_once_loop_survives_its_broker(place: Place, source: str, fault: str, protocol: str) -> None:
    target, group = new_topic(place.servers), new_group()
    with penstock.connect(place.servers, options=PROTOCOLS[protocol]) as mq:

        def use() -> None:
            with mq.exactly_once(source, group=group, batch=5, limit=COUNT) as loop:
                for message in loop:
                    loop.publish(target, message.json())
                    if message.json() == STRIKE_AT:
                        place.strike(fault)

        watched(mq, use)
        assert all_of(mq, target) == list(range(COUNT))


@pytest.mark.parametrize("fault", [pytest.param("stopped", marks=SLOW), pytest.param("killed", marks=SLOW), "silent"])
@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=SLOW), "consumer"])
def test_an_exactly_once_loop_of_a_task_survives_its_broker(
    place: Place, source: str, fault: str, protocol: str
) -> None:
    target, group = new_topic(place.servers), new_group()

    async def use(mq: AsyncConnection) -> None:
        async with mq.exactly_once(source, group=group, batch=5, limit=COUNT) as loop:
            async for message in loop:
                await loop.publish(target, message.json())
                if message.json() == STRIKE_AT:
                    await asyncio.to_thread(place.strike, fault)

    run_async(place, protocol, use)
    with connect(place.servers) as mq:
        assert all_of(mq, target) == list(range(COUNT))


def run_async(place: Place, protocol: str, use: Callable[[AsyncConnection], Any]) -> None:
    async def main() -> None:
        async with asyncio.timeout(LOOP_S), penstock.connect_async(place.servers, options=PROTOCOLS[protocol]) as mq:
            await use(mq)

    asyncio.run(main())


@SLOW
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("in_flight", [1, 4])
def test_an_at_least_once_loop_survives_its_broker(
    place: Place, source: str, fault: str, protocol: str, in_flight: int
) -> None:
    seen: Counter[int] = Counter()
    with penstock.connect(place.servers, options=PROTOCOLS[protocol]) as mq:

        def use() -> None:
            with mq.subscribe(source, group=new_group(), max_in_flight=in_flight, commit_every_s=0.1) as loop:
                for message in loop:
                    seen[message.json()] += 1
                    if message.json() == STRIKE_AT:
                        place.strike(fault)
                    if len(seen) == COUNT:
                        break
                    if in_flight > 1:
                        threading.Timer(0.3, finish, [message]).start()

        watched(mq, use)
    assert sorted(seen) == list(range(COUNT))


@SLOW
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_at_least_once_loop_of_a_task_survives_its_broker(
    place: Place, source: str, fault: str, protocol: str
) -> None:
    seen: Counter[int] = Counter()

    async def use(mq: AsyncConnection) -> None:
        async with mq.subscribe(source, group=new_group(), commit_every_s=0.1) as loop:
            async for message in loop:
                seen[message.json()] += 1
                if message.json() == STRIKE_AT:
                    await asyncio.to_thread(place.strike, fault)
                if len(seen) == COUNT:
                    break

    run_async(place, protocol, use)
    assert sorted(seen) == list(range(COUNT))


@SLOW
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_at_most_once_loop_survives_its_broker(place: Place, source: str, fault: str, protocol: str) -> None:
    """What was committed and not seen is gone; nothing is seen twice, and what is published later comes."""
    seen: Counter[int] = Counter()
    is_over = threading.Event()

    def publish_more() -> None:
        with connect(place.servers) as other:
            number = COUNT
            while not is_over.wait(0.2):
                other.publish(source, number)
                number += 1

    publisher = threading.Thread(target=publish_more)
    publisher.start()
    try:
        with penstock.connect(place.servers, options=PROTOCOLS[protocol]) as mq:

            def use() -> None:
                with mq.subscribe(source, group=new_group(), delivery="at-most-once", prefetch=1) as loop:
                    for message in loop:
                        seen[message.json()] += 1
                        if message.json() == STRIKE_AT:
                            place.strike(fault)
                        if message.json() > COUNT + 10:
                            break

            watched(mq, use)
    finally:
        is_over.set()
        publisher.join()
    assert max(seen) > COUNT + 10
    assert set(seen.values()) == {1}


# -- transactions


@SLOW  # librdkafka has two seconds for what takes longer on a busy machine
def test_a_transaction_that_its_coordinator_does_not_know_is_aborted(place: Place, source: str) -> None:
    """Its first request was lost, as when a broker is killed: EndTxn is refused, and librdkafka gives up."""
    target, group = new_topic(place.servers), new_group()
    with penstock.connect(place.servers, options=CLASSIC, timeout_s=2) as mq:

        def use() -> None:
            with mq.exactly_once(source, group=group, batch=5, limit=COUNT) as loop:
                for message in loop:
                    if message.json() == STRIKE_AT - STRIKE_AT % 5 and message.attempt == 1:
                        place.proxy.drop_requests(ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN)
                    elif message.attempt > 1:
                        place.proxy.drop_requests()
                    loop.publish(target, message.json())

        watched(mq, use)
        assert place.proxy.drops
        assert all_of(mq, target) == list(range(COUNT))


def test_publishing_in_a_transaction_that_has_failed_says_that_it_is_aborted(place: Place) -> None:
    """A message of it timed out: its block can be run again."""
    target = new_topic(place.servers)
    with connect(place.servers, timeout_s=2) as mq:
        with mq.transaction("tx") as tx:
            tx.publish(target, 1)
        place.proxy.drop_requests(ApiKey.ADD_PARTITIONS_TO_TXN)

        def publish_until_it_fails() -> None:
            deadline_s = time.monotonic() + LOOP_S
            with mq.transaction("tx") as tx:
                while time.monotonic() < deadline_s:
                    tx.publish(target, 2)
                    time.sleep(0.05)

        with pytest.raises(TransactionAborted):
            publish_until_it_fails()
        place.proxy.drop_requests()
        with mq.transaction("tx") as tx:
            tx.publish(target, 3)
        assert all_of(mq, target) == [1, 3]


def test_a_transaction_begins_though_its_cluster_answers_slowly(place: Place) -> None:
    """Each answer takes longer than one call to librdkafka waits."""
    target = new_topic(place.servers)
    with connect(place.servers) as mq:
        mq.publish(target, 1)
        place.strike("silent")
        with mq.transaction("tx") as tx:
            tx.publish(target, 2)
        assert all_of(mq, target) == [1, 2]


def test_offsets_are_sent_though_their_cluster_answers_slowly(place: Place, source: str) -> None:
    """What is sent needs several answers, and all of them within one call to librdkafka."""
    target, group = new_topic(place.servers), new_group()
    with penstock.connect(place.servers, options=CLASSIC | {"session.timeout.ms": 30_000}) as mq:

        def use() -> None:
            with mq.exactly_once(source, group=group, batch=5, limit=10) as loop:
                for message in loop:
                    loop.publish(target, message.json())
                    if message.json() == 7:
                        place.proxy.delay_answers(1.3)

        watched(mq, use)
        place.proxy.delay_answers(0)
        assert all_of(mq, target) == list(range(10))


# -- queues


def jobs_of(mq: Connection, count: int) -> str:
    name = new_name()
    mq.create_queue(name)
    mq.queue(name).send_many(range(count))
    return name


@pytest.mark.parametrize("fault", ["stopped", pytest.param("killed", marks=SLOW)])
@pytest.mark.parametrize("concurrency", [1, pytest.param(3, marks=SLOW)])
def test_a_worker_of_a_queue_survives_its_broker(place: Place, fault: str, concurrency: int) -> None:
    """The fault outlasts the visibility timeout: jobs in flight come again, to this worker."""
    seen: Counter[int] = Counter()
    with connect(place.servers) as mq:
        name = jobs_of(mq, COUNT)

        def handle(job: penstock.Job) -> None:
            seen[job.json()] += 1
            if job.json() == STRIKE_AT:
                place.strike(fault)

        def use() -> None:
            work = mq.queue(name).work(visibility="1s", concurrency=concurrency, backoff=0, idle_timeout_s=3)
            work.run(handle)

        watched(mq, use)
        assert sorted(seen) == list(range(COUNT))
        wait_until(lambda: mq.queue(name).counts().total == 0, "every job to be deleted")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["stopped", "killed"])
def test_a_worker_of_a_queue_in_tasks_survives_its_broker(place: Place, fault: str) -> None:
    seen: Counter[int] = Counter()
    with connect(place.servers) as mq:
        name = jobs_of(mq, COUNT)

    async def use(mq: AsyncConnection) -> None:
        async for job in mq.queue(name).work(visibility="1s", backoff=0, idle_timeout_s=3):
            seen[job.json()] += 1
            if job.json() == STRIKE_AT:
                await asyncio.to_thread(place.strike, fault)

    run_async(place, "classic", use)
    assert sorted(seen) == list(range(COUNT))
    with connect(place.servers) as mq:
        wait_until(lambda: mq.queue(name).counts().total == 0, "every job to be deleted")


def test_brokers_that_do_not_tell_where_queues_are_did_not_answer(place: Place) -> None:
    place.proxy.drop_requests(ApiKey.DESCRIBE_CONFIGS)
    with connect(place.servers, timeout_s=2) as mq, pytest.raises(penstock.NotConnected) as caught:
        mq.queue("jobs").send("hello")
    assert caught.value.code is ErrorCode.NETWORK_EXCEPTION


def test_a_queue_that_has_moved_is_looked_for_until_the_brokers_answer(place: Place) -> None:
    """Its broker was restarted, and went again before it could say where its queues are."""
    with connect(place.servers) as mq:
        queue = mq.queue(jobs_of(mq, 1))
        place.broker.kill()
        place.proxy.drop_requests(ApiKey.DESCRIBE_CONFIGS)
        recovery = threading.Thread(target=recover, args=(place,))
        recovery.start()
        queue.send("hello")
        recovery.join()
        assert queue.counts().total == 2


def recover(place: Place) -> None:
    place.broker.start()
    wait_until(lambda: place.proxy.drops >= 2, "two requests to be lost", timeout_s=LOOP_S)
    place.proxy.drop_requests()


# -- share groups


@SLOW
@pytest.mark.parametrize("fault", FAULTS)
def test_a_share_consumer_survives_its_broker(own_broker: Callable[..., BrokerProcess], fault: str) -> None:
    """confluent-kafka's, for the Python API has none: messages that it had are delivered again."""
    place = Place(own_broker, QUICK_SHARING)
    topic, group = new_topic(place.servers, partitions=2), new_group()
    earliest(place.broker, group)
    with connect(place.servers) as mq:
        mq.publish_many(topic, range(COUNT))
    seen: set[int] = set()
    with ShareConsumer({"bootstrap.servers": place.servers, "group.id": group, **QUIET}) as consumer:
        consumer.subscribe([topic])

        def look() -> bool:
            for message in consumer.poll(0.2):
                if message.error() is None:
                    seen.add(int(message.value()))
            if len(seen) > STRIKE_AT:
                place.strike(fault)
            return place.is_over and seen == set(range(COUNT + 1))

        wait_until(lambda: len(seen) > STRIKE_AT or look(), "the first messages", timeout_s=LOOP_S)
        look()
        wait_until(lambda: place.is_over, "the fault to be over", timeout_s=LOOP_S)
        with connect(place.servers) as mq:
            mq.publish(topic, COUNT)
        wait_until(look, "every message", timeout_s=LOOP_S, seen=seen)
    place.close()
