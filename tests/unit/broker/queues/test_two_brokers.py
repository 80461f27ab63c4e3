"""A queue with a partition at each of two brokers, and clients of both."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.call import Call
from penstock.broker.queues.messages import NewMessage, QueueUnavailable, Sent
from penstock.broker.registry import APIS
from penstock.cluster import keys
from penstock.cluster.administration import delete_topic
from penstock.cluster.queues import SCOPE_GROUP, MoveStatus, QueueSettings, Redrive
from penstock.coordination.store import ABSENT, Put
from penstock.queues.commands import AckType
from penstock.queues.errors import AlreadyFinished, NotHeld, NotInFlight
from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_acknowledge import QueueAcknowledgeRequest, QueueAcknowledgeResponse
from penstock.wire.messages.queue_control import QueueControlRequest
from penstock.wire.messages.queue_deliver import QueueDeliverRequest, QueueDeliverResponse
from penstock.wire.messages.queue_receive import QueueReceiveRequest
from penstock.wire.messages.queue_send import QueueSendResponse

from .queue_harness import turn, values
from .two_brokers import two_brokers_at


async def test_messages_are_sent_where_one_is_and_received_from_everywhere(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create()
        one, two = cluster.brokers[1], cluster.brokers[2]
        assert [sent.partition for sent in await one.send(queue, b"a")] == [0]
        assert [sent.partition for sent in await two.send(queue, b"b")] == [1]
        assert await one.counts(queue) == await two.counts(queue) == (2, 0, 0)
        first, second = await one.receive(queue, 10), await one.receive(queue, 10)
        assert (values(first), values(second)) == ([b"a"], [b"b"])
        assert await one.receive(queue, 10) == []
        assert await two.acknowledge(queue, [*first, *second]) == [None, None]
        assert await one.counts(queue) == (0, 0, 0)


async def test_a_broker_that_leads_nothing_sends_to_those_that_do(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create(partitions=1)
        two = cluster.brokers[2]
        (sent,) = await two.send(queue, b"a")
        (got,) = await two.receive(queue)
        assert (got.value, got.message_id) == (b"a", sent.message_id)
        assert await two.acknowledge(queue, [got], AckType.RENEW, 60_000) == [None]
        assert await two.acknowledge(queue, [got], AckType.RELEASE) == [None]
        (refused,) = await two.acknowledge(queue, [got])
        assert isinstance(refused, NotHeld)
        (again,) = await two.receive(queue)
        assert (again.count, await two.acknowledge(queue, [again])) == (2, [None])


async def test_errors_of_another_broker_keep_their_types(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create(partitions=1)
        two = cluster.brokers[2]
        await two.send(queue, b"a")
        held = await two.receive(queue, visibility_s=1)
        await two.advance(1000)
        (late,) = await two.acknowledge(queue, held, AckType.RELEASE)
        assert type(late) is NotInFlight
        await two.receive(queue)
        (elsewhere,) = await two.acknowledge(queue, held)
        assert type(elsewhere) is NotHeld
        (unseen,) = await two.send(queue, b"b")
        (never,) = await two.acknowledge(queue, [held[0]._replace(offset=unseen.offset)], AckType.RENEW, 1000)
        assert type(never) is AlreadyFinished, "it was never delivered"


async def test_the_leader_knows_what_a_receipt_is_good_for_in_its_queue(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        two = cluster.brokers[2]
        standard = await cluster.create("jobs", partitions=1)
        await two.send(standard, b"a")
        held = await two.receive(standard, visibility_s=1)
        await two.advance(1000)
        assert await two.acknowledge(standard, held, AckType.RENEW, 5000) == [None]
        assert await two.receive(standard) == []
        await two.advance(5000)
        assert await two.acknowledge(standard, held) == [None]
        fifo = await cluster.create("jobs.fifo", partitions=1, is_fifo=True)
        await two.send(fifo, b"a", key=b"g", deduplication_id="1")
        held = await two.receive(fifo, visibility_s=1)
        await two.advance(1000)
        for ack_type in (AckType.RENEW, AckType.DONE):
            (late,) = await two.acknowledge(fifo, held, ack_type, 5000)
            assert type(late) is NotInFlight
        (again,) = await two.receive(fifo)
        assert await two.acknowledge(fifo, [again]) == [None]


async def test_a_queue_that_is_deleted_while_its_topic_is_deleted_is_gone(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        orders = await cluster.create("orders")
        one = cluster.brokers[1].service
        await one.create("jobs", QueueSettings(), {}, "me", "orders")
        cluster.hold = lambda message: isinstance(message, QueueControlRequest)
        deleting = asyncio.ensure_future(one.delete("jobs"))
        await turn()
        assert not deleting.done(), "the other leader has not answered"
        await delete_topic(cluster.metadata, orders.topic_id)
        await deleting
        assert one.queues() == {}


async def test_deleting_a_queue_does_not_delete_a_newer_one_of_the_same_name(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        orders = await cluster.create("orders")
        one, two = cluster.brokers[1], cluster.brokers[2]
        await one.service.create("jobs", QueueSettings(), {}, "me", "orders")
        cluster.hold = lambda message: isinstance(message, QueueControlRequest)
        deleting = asyncio.ensure_future(one.service.delete("jobs"))
        await turn()
        cluster.hold = lambda message: False
        await two.service.delete("jobs")  # before the first one asks again
        cluster.clock.advance(1)
        await two.send(orders, b"x")
        jobs = await two.service.create("jobs", QueueSettings(), {}, "me", "orders")
        assert await two.acknowledge(jobs, await two.receive(jobs)) == [None]
        await deleting
        assert two.service.queue("jobs") == jobs
        assert await two.receive(jobs) == [], "what is done in it stays done"


async def test_a_queue_does_not_look_empty_while_one_of_its_leaders_cannot_be_reached(tmp_path: Path) -> None:
    """Also if another leader, asked later, has no messages."""
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create()
        away = Put(keys.broker(3), keys.encode({"host": "h3", "port": 1}), ABSENT)
        await cluster.metadata.change(lambda image: [] if 3 in image.brokers else [away])
        await cluster.move(queue, 0, 3)
        one, two = cluster.brokers[1], cluster.brokers[2]
        assert one.service.receivers.other_leaders(queue) == [3, 2]
        with pytest.raises(QueueUnavailable, match="broker 3 is not there"):
            await one.receive(queue)
        await two.send(queue, b"a")
        assert values(await one.receive(queue)) == [b"a"]


async def test_a_long_poll_gets_messages_of_another_broker(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create()
        one, two = cluster.brokers[1], cluster.brokers[2]
        waiting = one.wait(queue)
        await turn()
        await two.send(queue, b"there")
        assert values(await waiting) == [b"there"]
        waiting = one.wait(queue)
        await turn()
        await one.send(queue, b"here")
        assert values(await waiting) == [b"here"]
        await turn()
        await two.send(queue, b"not received yet")
        await turn()
        assert await one.counts(queue) == (1, 2, 0)


async def test_messages_for_a_long_poll_at_a_killed_broker_are_not_delivered_to_others(
    tmp_path: Path,
) -> None:
    """Another broker still has the old request; a long poll at the restarted one may be for another queue."""
    async with two_brokers_at(tmp_path) as cluster:
        orders, jobs = await cluster.create("orders"), await cluster.create("jobs")
        one, two = cluster.brokers[1], cluster.brokers[2]
        forgotten = one.wait(orders)
        await turn()
        killed, one.service = one.service, one.make_service()
        one.apply(cluster.metadata.image)
        await one.ready()
        waiting = one.wait(jobs)
        await turn()
        await two.send(orders, b"order")
        await turn()
        assert not waiting.done()
        assert await two.counts(orders) == (1, 0, 0), "as if never delivered"
        await two.send(jobs, b"job")
        assert values(await waiting) == [b"job"]
        forgotten.cancel()
        await killed.close()


async def test_messages_held_for_one_long_poll_are_not_delivered_to_another(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        orders, jobs = await cluster.create("orders"), await cluster.create("jobs")
        one = cluster.brokers[1]
        await one.send(orders, b"order")
        held = await one.receive(orders)
        waiting = one.wait(jobs)
        await turn()
        receivers = one.service.receivers
        (ticket,) = receivers.long_polls
        assert not receivers.deliver(ticket, held)
        assert not waiting.done()
        waiting.cancel()


async def test_if_two_leaders_have_messages_for_a_long_poll_one_releases_its_own(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create()
        one, two = cluster.brokers[1], cluster.brokers[2]
        waiting = one.wait(queue)
        await turn()
        await one.send(queue, b"x")
        await two.send(queue, b"x")
        assert values(await waiting) == [b"x"]
        await turn()
        assert await one.counts(queue) == (1, 1, 0)
        (got,) = await one.receive(queue, 10)
        assert got.count == 1


async def test_a_disconnected_long_poll_is_forgotten_by_all_brokers(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create()
        one, two = cluster.brokers[1], cluster.brokers[2]
        waiting = one.wait(queue)
        await turn()
        waiting.cancel()
        await turn()
        assert (2, ApiKey.QUEUE_CONTROL) in cluster.asked
        await two.send(queue, b"a")
        await turn()
        assert (1, ApiKey.QUEUE_DELIVER) not in cluster.asked
        assert await one.counts(queue) == (1, 0, 0)


async def test_messages_for_a_client_that_disconnected_meanwhile_do_not_count_as_delivered(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create()
        one, two = cluster.brokers[1], cluster.brokers[2]
        waiting = one.wait(queue)
        await turn()
        cluster.hold = lambda message: type(message).__name__ == "QueueControlRequest"
        waiting.cancel()
        await two.send(queue, b"a")
        await turn()
        assert (1, ApiKey.QUEUE_DELIVER) in cluster.asked
        cluster.hold = lambda message: False
        (got,) = await two.receive(queue)
        assert (got.value, got.count) == (b"a", 1)


async def test_messages_with_an_unknown_delivery_become_visible_after_the_timeout(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create()
        one, two = cluster.brokers[1], cluster.brokers[2]
        for lost in (QueueDeliverRequest, QueueDeliverResponse):
            waiting = one.wait(queue)
            await turn()
            cluster.hold = lambda message, lost=lost: isinstance(message, lost)  # type: ignore[misc]
            await two.send(queue, b"a")
            await turn()
            cluster.hold = lambda message: False
            assert await two.counts(queue) == (0, 1, 0)
            assert waiting.done() == (lost is QueueDeliverResponse)
            waiting.cancel()
            await turn()
            await two.advance(30_000)
            (got,) = await two.receive(queue)
            assert await two.acknowledge(queue, [got]) == [None]


async def test_a_long_poll_follows_the_partition_to_its_next_leader(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create(partitions=1)
        one, two = cluster.brokers[1], cluster.brokers[2]
        waiting = [one.wait(queue), two.wait(queue)]
        await turn()
        await cluster.move(queue, 0, 2)
        await one.send(queue, b"a")
        await two.send(queue, b"b")
        assert sorted([*values(await waiting[0]), *values(await waiting[1])]) == [b"a", b"b"]


async def test_a_duplicate_is_detected_at_every_broker_after_a_lost_response(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create("jobs.fifo", is_fifo=True, deduplication_scope=SCOPE_GROUP)
        one, two = cluster.brokers[1], cluster.brokers[2]
        messages = [NewMessage(b"x", group.encode(), (), "same") for group in "abcdef"]
        lost: list[Any] = []

        def lose_first(message: Any) -> bool:
            if isinstance(message, QueueSendResponse) and not lost:
                lost.append(message)
            return bool(lost) and message is lost[0]

        cluster.hold = lose_first
        sent = await one.service.send(queue, messages)
        assert all(isinstance(each, Sent) for each in sent)
        assert lost
        again = await two.service.send(queue, messages)
        assert [each.is_duplicate for each in again if isinstance(each, Sent)] == [True] * 6
        assert await one.counts(queue) == (6, 0, 0)


async def test_a_delete_whose_answer_was_lost_is_answered_well_the_second_time(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create(partitions=1)
        two = cluster.brokers[2]
        await two.send(queue, b"a")
        got = await two.receive(queue)
        lost: list[Any] = []

        def lose_first(message: Any) -> bool:
            if isinstance(message, QueueAcknowledgeResponse) and not lost:
                lost.append(message)
            return bool(lost) and message is lost[0]

        cluster.hold = lose_first
        assert await two.acknowledge(queue, got) == [None]
        assert lost
        assert await two.counts(queue) == (0, 0, 0)


async def test_a_standard_message_whose_answer_was_lost_is_not_sent_twice(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create(partitions=1)
        cluster.hold = lambda message: isinstance(message, QueueSendResponse)
        (error,) = await cluster.brokers[2].service.send(queue, [NewMessage(b"a")])
        assert isinstance(error, QueueUnavailable)
        cluster.hold = lambda message: False
        assert await cluster.brokers[1].counts(queue) == (1, 0, 0)


async def test_dead_letters_cross_and_go_back(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        dead = await cluster.create("dead")
        queue = await cluster.create("jobs", redrive=Redrive(queue="dead", max_receive_count=1))
        one, two = cluster.brokers[1], cluster.brokers[2]
        for number in range(10):
            await (one if number % 2 else two).send(queue, str(number).encode())

        async def spoil() -> bool:
            got = await one.receive(queue, 10)
            await one.acknowledge(queue, got, AckType.RELEASE)
            return await two.counts(dead) == (10, 0, 0)

        while not await spoil():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await one.counts(queue) == (0, 0, 0)
        assert (1, ApiKey.PRODUCE) in cluster.asked or (2, ApiKey.PRODUCE) in cluster.asked
        await two.service.start_move(dead, None, 0)

        async def is_over() -> bool:
            (task,) = await one.service.moves(dead)
            return task.status is MoveStatus.COMPLETED

        while not await is_over():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        got = [*await one.receive(queue, 10), *await two.receive(queue, 10)]
        assert sorted(int(each.value) for each in got) == list(range(10))


async def test_a_purge_reaches_all_partitions(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create()
        one, two = cluster.brokers[1], cluster.brokers[2]
        await one.send(queue, b"a")
        await two.send(queue, b"b")
        await one.service.purge("jobs")
        assert await two.counts(queue) == (0, 0, 0)


async def test_a_purge_through_another_broker_lets_ids_be_used_again(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create("jobs.fifo", is_fifo=True, deduplication_scope=SCOPE_GROUP)
        one, two = cluster.brokers[1], cluster.brokers[2]
        wanted = [NewMessage(b"x", group.encode(), (), "same") for group in "abcdef"]

        async def send() -> list[bool]:
            return [each.is_duplicate for each in await one.service.send(queue, wanted) if isinstance(each, Sent)]

        assert await send() == [False] * 6
        await two.service.purge("jobs.fifo")
        assert await send() == [False] * 6
        assert await send() == [True] * 6


async def test_messages_for_a_broker_that_has_hung_up_meanwhile_are_as_if_never_delivered(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create(partitions=1)
        one = cluster.brokers[1]
        await one.send(queue, b"a")
        request = QueueReceiveRequest(
            queue="jobs", topic_id=queue.topic_id, holder="h", max_messages=1, visibility_ms=60_000, node_id=2
        )
        call = Call(ApiKey.QUEUE_RECEIVE, 0, 7, "broker", 0.0, 0, "10.0.0.1:5", lambda call: None)
        call.is_disconnected = True
        APIS[ApiKey.QUEUE_RECEIVE].handler(request, call, one.broker)
        await turn()
        assert await one.counts(queue) == (1, 0, 0)
        (got,) = await one.receive(queue)
        assert got.count == 1


async def test_a_delivery_is_released_at_the_new_leader(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create(partitions=1)
        one, two = cluster.brokers[1], cluster.brokers[2]
        await two.send(queue, b"a")
        held = await two.receive(queue)
        cluster.hold = lambda message: isinstance(message, QueueAcknowledgeRequest)
        two.service.undo(queue, held)
        await turn()
        assert await one.counts(queue) == (0, 1, 0), "the leader cannot be reached"
        cluster.hold = lambda message: False
        async with asyncio.timeout(60):
            while await one.counts(queue) != (1, 0, 0):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_repeated_delivery_is_known_for_one_at_another_broker(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create("jobs.fifo", partitions=1, is_fifo=True)
        one, two = cluster.brokers[1], cluster.brokers[2]
        await two.send(queue, b"a", key=b"g", deduplication_id="1")
        first = await two.receive(queue, attempt_id="mine")
        again = await two.receive(queue, attempt_id="mine")
        assert [each.is_repeat for each in (*first, *again)] == [False, True]
        two.service.undo(queue, again)
        await turn()
        assert await one.counts(queue) == (0, 1, 0)
