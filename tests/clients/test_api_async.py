"""The asyncio Python API: all that the blocking one does, and cancelled tasks."""

import asyncio
import re
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

import penstock
from penstock import AsyncConnection, AsyncExactlyOnce, AsyncSubscription, Message, Outgoing
from penstock.foundation.codes import ErrorCode
from tests.brokers import BrokerProcess

from .api_lab import IDLE_S, QUICK, connect, new_group, new_topic, threads
from .conftest import QUICK_GROUPS
from .waiting import PATIENCE_S, wait_until

T = TypeVar("T")
DELIVERIES = ["at-most-once", "at-least-once", "exactly-once"]


@pytest.fixture
def topic(group_broker: BrokerProcess) -> str:
    return new_topic(group_broker.kafka)


@pytest.fixture
def group() -> str:
    return new_group()


def connect_async(servers: str, **options: Any) -> AsyncConnection:
    return penstock.connect_async(servers, options=QUICK, **options)


@pytest.fixture
def run(group_broker: BrokerProcess) -> Callable[[Callable[[AsyncConnection], Awaitable[T]]], T]:
    """Run something with a connection, in an event loop of its own; warnings of the loop are errors."""

    def run(use: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        async def main() -> T:
            async with asyncio.timeout(60), connect_async(group_broker.kafka) as mq:
                return await use(mq)

        return asyncio.run(main(), debug=False)

    return run


Run = Callable[[Callable[[AsyncConnection], Awaitable[Any]]], Any]


async def numbers(messages: AsyncIterable[Message]) -> list[int]:
    return [message.json() async for message in messages]


async def all_of(mq: AsyncConnection, topic: str) -> list[int]:
    return sorted(await numbers(mq.subscribe(topic, idle_timeout_s=IDLE_S)))


async def rest(mq: AsyncConnection, topic: str, group: str) -> list[int]:
    """What a group has not committed yet."""
    return await numbers(mq.subscribe(topic, group=group, idle_timeout_s=IDLE_S))


# -- publishing


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_publish_returns_partition_and_offset(run: Run, topic: str, delivery: str) -> None:
    async def use(mq: AsyncConnection) -> None:
        places = [await mq.publish(topic, number, delivery=delivery) for number in range(10)]  # type: ignore[arg-type]
        expected = [None] * 10 if delivery == "at-most-once" else list(range(10))
        assert [place.offset for place in places] == expected
        assert await all_of(mq, topic) == list(range(10))

    run(use)


def test_many_tasks_publish_at_the_same_time(run: Run, topic: str) -> None:
    async def use(mq: AsyncConnection) -> None:
        places = await asyncio.gather(*(mq.publish(topic, number, key="k", tag="eu") for number in range(500)))
        assert [place.offset for place in places] == list(range(500))
        async for message in mq.subscribe(topic, limit=1):
            assert (message.key, message.tag, message.json()) == (b"k", "eu", 0)

    run(use)


def test_many_messages_are_answered_in_order(run: Run, topic: str) -> None:
    async def lines() -> AsyncIterator[object]:
        for number in range(1000, 2000):
            yield Outgoing(number, key="same")

    async def use(mq: AsyncConnection) -> None:
        first = await mq.publish_many(topic, range(1000), max_in_flight=100)
        second = await mq.publish_many(topic, lines())
        assert [place.offset for place in first + second] == list(range(2000))
        assert await numbers(mq.subscribe(topic, limit=2000)) == list(range(2000))

    run(use)


def test_a_stream_takes_no_more_than_may_be_in_flight(run: Run, topic: str) -> None:
    taken = 0

    async def endless() -> AsyncIterator[object]:
        nonlocal taken
        while True:
            yield taken
            taken += 1

    async def use(mq: AsyncConnection) -> None:
        seen = 0
        stream = mq.publish_stream(topic, endless(), max_in_flight=10)
        async for place in stream:
            assert place.offset == seen
            seen += 1
            assert taken < seen + 10
            if seen == 50:
                break
        await stream.aclose()  # type: ignore[attr-defined]

    run(use)


def test_publish_raises_if_the_message_cannot_be_published(run: Run, topic: str) -> None:
    async def use(mq: AsyncConnection) -> None:
        with pytest.raises(penstock.PublishFailed, match=r"max\.message\.bytes") as caught:
            await mq.publish(topic, b"x" * 2_000_000)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(penstock.PublishFailed, match=r"message 1 was not published \(the 1 before it were\)"):
            await mq.publish_many(topic, [1, b"x" * 2_000_000])
        with pytest.raises(penstock.UnknownTopic):
            await mq.publish(topic, 1, partition=7)
        with pytest.raises(penstock.InvalidValue):
            await mq.publish(topic, {1, 2})

    run(use)


def test_a_refused_connection_is_reported_at_once() -> None:
    async def main() -> None:
        with pytest.raises(penstock.NotConnected, match="penstock serve") as caught:
            async with connect_async("127.0.0.1:1", timeout_s=0.5):
                pass
        assert caught.value.code is ErrorCode.NETWORK_EXCEPTION

    before = threads()
    asyncio.run(main())
    wait_until(lambda: threads() <= before, "no thread is left")


# -- transactions


def test_a_transaction_counts_when_it_ends_and_not_when_it_fails(run: Run, topic: str) -> None:
    async def use(mq: AsyncConnection) -> None:
        for number in range(4):
            with suppress(RuntimeError):
                async with mq.transaction(topic) as tx:
                    await tx.publish(topic, number)
                    assert tx.published == 1
                    if number % 2:
                        raise RuntimeError
        assert await all_of(mq, topic) == [0, 2]

    run(use)


def test_the_newest_user_of_an_id_fences_the_others(run: Run, topic: str, group_broker: BrokerProcess) -> None:
    async def use(mq: AsyncConnection) -> None:
        async def fight() -> None:
            async with mq.transaction(topic) as older:
                await older.publish(topic, 1)
                async with connect_async(group_broker.kafka) as other, other.transaction(topic) as newer:
                    await newer.publish(topic, 2)

        with pytest.raises(penstock.Fenced, match="its own id"):
            await fight()
        assert await all_of(mq, topic) == [2]

    run(use)


def test_a_task_that_is_cancelled_in_a_transaction_aborts_it(run: Run, topic: str) -> None:
    async def use(mq: AsyncConnection) -> None:
        is_open = asyncio.Event()

        async def work() -> None:
            async with mq.transaction(topic) as tx:
                await tx.publish(topic, 1)
                is_open.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await is_open.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with mq.transaction(topic) as tx:  # it is free again
            await tx.publish(topic, 2)
        assert await all_of(mq, topic) == [2]

    run(use)


def test_a_task_that_is_cancelled_while_its_transaction_begins_leaves_none_open(run: Run, topic: str) -> None:
    async def use(mq: AsyncConnection) -> None:
        async def work() -> None:
            async with mq.transaction(topic):
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await asyncio.sleep(0)  # it has asked for its producer, and waits
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with mq.transaction(topic) as tx:
            await tx.publish(topic, 1)
        assert await all_of(mq, topic) == [1]

    run(use)


# -- reading


def test_a_group_goes_on_where_it_was(run: Run, topic: str, group: str) -> None:
    async def use(mq: AsyncConnection) -> None:
        await mq.publish_many(topic, range(10))
        assert await numbers(mq.subscribe(topic, group=group, limit=4)) == [0, 1, 2, 3]
        async for message in mq.subscribe(topic, group=group):
            if message.json() == 6:
                break  # it is not handled yet, and the loop is left open until the connection is closed
        assert message.json() == 6

    async def go_on(mq: AsyncConnection) -> None:
        assert await rest(mq, topic, group) == [6, 7, 8, 9]
        assert await mq.seek(group, topic, to=8) == {0: 8}
        assert await rest(mq, topic, group) == [8, 9]

    run(use)
    run(go_on)


def test_a_message_can_be_retried(run: Run, topic: str, group: str) -> None:
    async def use(mq: AsyncConnection) -> None:
        await mq.publish_many(topic, range(3))
        seen = []
        async for message in mq.subscribe(topic, group=group, idle_timeout_s=IDLE_S):
            seen.append((message.json(), message.attempt))
            if message.json() == 1 and message.attempt < 3:
                message.retry(delay_s=0.05)
        assert seen == [(0, 1), (1, 1), (1, 2), (1, 3), (2, 1)]
        assert await rest(mq, topic, group) == []

    run(use)


def test_tasks_may_have_several_messages_in_flight(run: Run, topic: str, group: str) -> None:
    async def use(mq: AsyncConnection) -> None:
        await mq.publish_many(topic, range(200))
        in_flight = most = 0
        done = []

        async def work(message: Message) -> None:
            nonlocal in_flight
            await asyncio.sleep(0.002)
            done.append(message.json())
            in_flight -= 1
            message.done()

        async with asyncio.TaskGroup() as tasks:
            async for message in mq.subscribe(topic, group=group, max_in_flight=8, idle_timeout_s=IDLE_S):
                in_flight += 1
                most = max(most, in_flight)
                tasks.create_task(work(message))
        assert sorted(done) == list(range(200))
        assert 1 < most <= 8
        assert await rest(mq, topic, group) == []

    run(use)


def test_batches_are_finished_together(run: Run, topic: str, group: str) -> None:
    async def use(mq: AsyncConnection) -> None:
        await mq.publish_many(topic, range(100))
        sizes = [len(batch) async for batch in mq.subscribe(topic, group=group, limit=60).batches(25)]
        assert sum(sizes) == 60
        assert max(sizes) <= 25
        assert await rest(mq, topic, group) == list(range(60, 100))

    run(use)


def test_a_message_that_was_handled_is_passed_over(run: Run, topic: str, group: str, tmp_path: Path) -> None:
    async def use(mq: AsyncConnection) -> None:
        await mq.publish_many(topic, [1, 2, 1, 3, 2])
        options: dict[str, Any] = {"idempotent_by": lambda each: each.json(), "store": tmp_path / "handled"}
        assert await numbers(mq.subscribe(topic, group=group, idle_timeout_s=IDLE_S, **options)) == [1, 2, 3]
        assert await rest(mq, topic, group) == []

    run(use)


def test_a_reader_at_the_end_sees_what_comes_from_then_on(run: Run, topic: str, group: str) -> None:
    async def use(mq: AsyncConnection) -> None:
        await mq.publish(topic, 0)
        for alone_or_not in (None, group):
            async with mq.subscribe(topic, group=alone_or_not, from_="latest", limit=1) as messages:
                await messages.ready()
                await mq.publish(topic, 1)
                assert await numbers(messages) == [1]

    run(use)


def test_a_task_that_is_cancelled_while_it_waits_can_go_on_reading(run: Run, topic: str, group: str) -> None:
    """`asyncio.timeout` around `anext` is how tasks wait for a while: nothing must be lost by it."""

    async def use(mq: AsyncConnection) -> None:
        async with mq.subscribe(topic, group=group) as messages:
            await messages.ready()
            for number in range(5):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await anext(messages)
                await mq.publish(topic, number)
                assert (await anext(messages)).json() == number
        assert await rest(mq, topic, group) == [4]  # delivered, and not handled

    run(use)


def test_a_loop_can_be_ended_by_another_task(run: Run, topic: str, group: str) -> None:
    async def use(mq: AsyncConnection) -> None:
        for messages in (mq.subscribe(topic), mq.subscribe(topic, group=group)):
            waiting = asyncio.create_task(numbers(messages))
            await messages.ready()
            await messages.close()
            assert await waiting == []
            assert await numbers(messages) == []
            with pytest.raises(penstock.Closed):
                await messages.ready()

    run(use)


def test_a_loop_that_fails_while_no_task_waits_is_closed_all_the_same(run: Run, topic: str) -> None:
    """A task that is cancelled does not get the error; closing the loop raises it, and closes it."""
    reached, go_on = threading.Event(), threading.Event()

    def broken(message: Message) -> int:
        reached.set()
        go_on.wait(PATIENCE_S)
        raise ZeroDivisionError

    async def use(mq: AsyncConnection) -> None:
        messages = mq.subscribe(topic, idempotent_by=broken)
        await mq.publish(topic, 1)
        waiting = asyncio.create_task(numbers(messages))
        await asyncio.to_thread(reached.wait, PATIENCE_S)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        go_on.set()
        with pytest.raises(ZeroDivisionError):
            await messages.close()
        assert await numbers(messages) == []

    before = threads()
    run(use)
    wait_until(lambda: threads() <= before, "no thread is left")


def test_invalid_arguments_are_refused_before_a_connection_is_opened(run: Run, topic: str) -> None:
    async def use(mq: AsyncConnection) -> None:
        with pytest.raises(penstock.InvalidArgument, match="idempotent_by="):
            mq.subscribe(topic, delivery="exactly-once")
        with pytest.raises(penstock.InvalidArgument, match="group="):
            mq.exactly_once(topic, group="")
        with pytest.raises(penstock.InvalidArgument, match="is not a regular expression"):
            mq.subscribe("^(")
        with pytest.raises(penstock.UnknownTopic):
            await mq.seek("group", "there-is-no-such-topic", to="earliest")
        assert await numbers(mq.subscribe(re.compile("there-is-.*"), idle_timeout_s=IDLE_S)) == []

    run(use)


# -- exactly once


def test_results_count_together_with_what_they_were_made_from(
    run: Run, topic: str, group: str, group_broker: BrokerProcess
) -> None:
    target = new_topic(group_broker.kafka)

    async def double(mq: AsyncConnection, fail_at: int | None) -> AsyncExactlyOnce:
        async with mq.exactly_once(topic, group=group, batch=7, idle_timeout_s=IDLE_S) as loop:
            async for message in loop:
                await loop.publish(target, message.json() * 2)
                if message.json() == fail_at:
                    raise RuntimeError
        return loop

    async def use(mq: AsyncConnection) -> None:
        await mq.publish_many(topic, range(50))
        with pytest.raises(RuntimeError):
            await double(mq, fail_at=20)
        loop = await double(mq, fail_at=None)
        assert loop.transactions > 0
        with pytest.raises(penstock.Closed):
            await loop.publish(target, 1)
        assert await all_of(mq, target) == list(range(0, 100, 2))
        assert await rest(mq, topic, group) == []

    run(use)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_process_takes_functions_and_coroutine_functions(
    run: Run, topic: str, group: str, group_broker: BrokerProcess, delivery: str
) -> None:
    target = new_topic(group_broker.kafka)

    async def slowly(message: Message) -> object:
        await asyncio.sleep(0)
        return [message.json(), Outgoing(1000 + message.json())]

    async def use(mq: AsyncConnection) -> None:
        await mq.publish_many(topic, range(20))
        options: dict[str, Any] = {"group": group, "delivery": delivery, "idle_timeout_s": IDLE_S}
        assert await mq.process(topic, target, transform=slowly, limit=10, **options) == 10
        assert await mq.process(topic, lambda message: target, transform=lambda m: m.value, **options) == 10
        assert await all_of(mq, target) == [*range(20), *range(1000, 1010)]
        assert await mq.process(topic, target, transform=slowly, **options) == 0

    run(use)


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_process_ends_when_its_connection_is_closed(
    run: Run, topic: str, group: str, group_broker: BrokerProcess, delivery: str
) -> None:
    target = new_topic(group_broker.kafka)

    async def use(mq: AsyncConnection) -> None:
        await mq.publish_many(topic, range(5))
        other = await connect_async(group_broker.kafka).__aenter__()

        async def close(message: Message) -> int:
            await other.close()
            number: int = message.json()
            return number

        options: dict[str, Any] = {"group": group, "delivery": delivery}
        assert await other.process(topic, target, transform=close, **options) == 0
        await mq.process(topic, target, transform=lambda m: m.json(), idle_timeout_s=IDLE_S, **options)
        assert await all_of(mq, target) == list(range(5))

    run(use)


def test_a_cancelled_process_has_either_done_a_message_or_not(
    run: Run, topic: str, group: str, group_broker: BrokerProcess
) -> None:
    target = new_topic(group_broker.kafka)

    async def use(mq: AsyncConnection) -> None:
        await mq.publish_many(topic, range(500))
        for _ in range(3):
            some = asyncio.Event()

            def pass_on(message: Message, some: asyncio.Event = some) -> int:
                some.set()
                number: int = message.json()
                return number

            task = asyncio.create_task(mq.process(topic, target, group=group, transform=pass_on, batch=9))
            await some.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await mq.process(topic, target, group=group, transform=lambda m: m.json(), idle_timeout_s=IDLE_S)
        assert await all_of(mq, target) == list(range(500))

    run(use)


# -- brokers that go, and the end


def test_tasks_go_on_when_the_broker_comes_back(own_broker: Callable[..., BrokerProcess], group: str) -> None:
    broker = own_broker(QUICK_GROUPS)
    topic = new_topic(broker.kafka)

    async def main() -> None:
        async with connect_async(broker.kafka) as mq:
            await mq.publish(topic, 0)
            messages = mq.subscribe(topic, group=group, limit=50)
            assert (await anext(messages)).json() == 0
            broker.kill()
            publishing = asyncio.create_task(mq.publish_many(topic, range(1, 50)))
            await asyncio.to_thread(broker.start)
            assert len(await publishing) == 49
            assert set(await numbers(messages)) >= set(range(1, 49))

    asyncio.run(main())


def test_closing_ends_all_loops_and_leaves_no_thread(group_broker: BrokerProcess, topic: str, group: str) -> None:
    async def main() -> None:
        async with connect_async(group_broker.kafka) as mq:
            await mq.publish_many(topic, range(3))
            loops: list[AsyncSubscription] = [mq.subscribe(topic), mq.subscribe(topic, group=group)]
            waiting = [asyncio.create_task(numbers(loop)) for loop in loops]
            async with mq.exactly_once(topic, group=f"{group}-2") as loop, mq.transaction(topic):
                assert (await anext(loop)).json() == 0
                for each in loops:
                    await each.ready()
                unused = mq.subscribe(topic)
                await mq.close()
        for each in waiting:
            assert set(await each) <= {0, 1, 2}
        for use in (lambda: mq.publish(topic, 1), mq.check, lambda: mq.seek(group, topic, to="earliest")):
            with pytest.raises(penstock.Closed, match="connect again"):
                await use()
        with pytest.raises(penstock.Closed):
            mq.subscribe(topic)
        assert await numbers(unused) == []

    before = threads()
    asyncio.run(main())
    wait_until(lambda: threads() <= before, "no thread is left")


def test_a_garbage_collected_connection_releases_everything(group_broker: BrokerProcess, topic: str) -> None:
    async def main() -> None:
        mq = connect_async(group_broker.kafka)
        await mq.publish(topic, 0)
        async for message in mq.subscribe(topic):
            assert message.json() == 0
            break

    before = threads()
    asyncio.run(main())
    wait_until(lambda: threads() <= before, "no thread is left")
    with connect(group_broker.kafka) as mq:
        assert [message.json() for message in mq.subscribe(topic, limit=1)] == [0]


def test_a_connection_may_wait_for_its_broker(own_broker: Callable[..., BrokerProcess]) -> None:
    """Without `async with`, the broker is not contacted before the first message."""
    broker = own_broker()
    broker.stop()

    async def main() -> None:
        mq = connect_async(broker.kafka)
        publishing = asyncio.create_task(mq.publish("late", 1))
        await asyncio.to_thread(broker.start)
        async with asyncio.timeout(PATIENCE_S):
            assert (await publishing).offset == 0
        await mq.close()

    asyncio.run(main())
