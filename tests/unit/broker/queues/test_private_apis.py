"""What brokers ask each other about queues, asked by somebody who is none."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_acknowledge import QueueAcknowledgement, QueueAcknowledgeRequest
from penstock.wire.messages.queue_control import COUNT, FORGET, PURGE, STOP_WAITING, QueueControlRequest
from penstock.wire.messages.queue_deliver import QueueDeliverRequest
from penstock.wire.messages.queue_receive import QueueReceiveRequest
from penstock.wire.messages.queue_send import QueueNewMessage, QueueSendRequest

from .shop import turn, values
from .town import Town, town_at

MESSAGE = QueueNewMessage(key=None, value=b"x", headers=())


async def ask(town: Town, request: Any) -> Any:
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    town.carry(0, 1, request, answered.set_result)
    return await answered


async def test_a_queue_that_is_not_there_or_another_one_is_refused(tmp_path: Path) -> None:
    async with town_at(tmp_path) as town:
        queue = await town.create()
        for name, topic_id in (("nowhere", queue.topic_id), (queue.name, bytes(16))):
            send = QueueSendRequest(queue=name, topic_id=topic_id, partition=0, messages=[MESSAGE])
            assert (await ask(town, send)).error == "NoSuchQueue"
            receive = QueueReceiveRequest(
                queue=name, topic_id=topic_id, holder="me", max_messages=1, visibility_ms=1000
            )
            assert (await ask(town, receive)).error == "NoSuchQueue"
            for action in (COUNT, PURGE, FORGET):
                control = QueueControlRequest(action=action, queue=name, topic_id=topic_id)
                assert (await ask(town, control)).error == "NoSuchQueue"
            item = QueueAcknowledgement(partition=0, offset=0, holder="me", ack_type="done")
            (settled,) = (
                await ask(town, QueueAcknowledgeRequest(queue=name, topic_id=topic_id, items=[item]))
            ).results
            assert settled.error == "NoSuchQueue"


@pytest.mark.parametrize("partition", [-1, 1, 99])
async def test_a_partition_that_is_not_led_here_is_refused(tmp_path: Path, partition: int) -> None:
    async with town_at(tmp_path) as town:
        queue = await town.create()
        where = {"queue": queue.name, "topic_id": queue.topic_id}
        send = QueueSendRequest(**where, partition=partition, messages=[MESSAGE])
        assert (await ask(town, send)).error == "NotLeaderOrFollower"
        item = QueueAcknowledgement(partition=partition, offset=0, holder="me", ack_type="done")
        (settled,) = (await ask(town, QueueAcknowledgeRequest(**where, items=[item]))).results
        assert settled.error == "NotLeaderOrFollower"


@pytest.mark.parametrize(
    "wrong",
    [
        {"ack_type": "eaten"},
        {"ack_type": "move"},
        {"offset": -1},
        {"delay_ms": -1},
        {"delay_ms": 2**62},
    ],
)
async def test_settlements_that_cannot_be_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async with town_at(tmp_path) as town:
        queue = await town.create()
        item = QueueAcknowledgement(**{"partition": 0, "offset": 0, "holder": "me", "ack_type": "renew", **wrong})
        request = QueueAcknowledgeRequest(queue=queue.name, topic_id=queue.topic_id, items=[item])
        (settled,) = (await ask(town, request)).results
        assert settled.error == "InvalidRequest"


@pytest.mark.parametrize(
    "wrong",
    [{"max_messages": 0}, {"max_messages": -7}, {"visibility_ms": -1}, {"visibility_ms": 2**62}, {"holder": ""}],
)
async def test_receives_that_cannot_be_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async with town_at(tmp_path) as town:
        queue = await town.create()
        wanted = {"holder": "me", "max_messages": 1, "visibility_ms": 1000, **wrong}
        request = QueueReceiveRequest(queue=queue.name, topic_id=queue.topic_id, **wanted)
        assert (await ask(town, request)).error == "InvalidRequest"


async def test_what_is_empty_or_unknown_does_nothing(tmp_path: Path) -> None:
    async with town_at(tmp_path) as town:
        queue = await town.create()
        where = {"queue": queue.name, "topic_id": queue.topic_id}
        assert (await ask(town, QueueSendRequest(**where, partition=0, messages=[]))).error == "InvalidRequest"
        assert (await ask(town, QueueAcknowledgeRequest(**where, items=[]))).results == []
        assert (await ask(town, QueueControlRequest(**where, action=9))).error == "InvalidRequest"
        assert not (await ask(town, QueueDeliverRequest(ticket=5, messages=[]))).is_taken
        sent = await ask(town, QueueSendRequest(**where, partition=0, messages=[MESSAGE, MESSAGE]))
        assert [each.offset for each in sent.messages] == [0, 1]
        assert values(await town.houses[2].receive(queue, 10)) == [b"x", b"x"]


async def test_a_long_poll_that_is_asked_for_again_waits_only_once(tmp_path: Path) -> None:
    """The other broker has not got the first answer; what it says at last is meant for both."""
    async with town_at(tmp_path) as town:
        queue = await town.create(partitions=1)
        where = {"queue": queue.name, "topic_id": queue.topic_id, "node_id": 2, "ticket": 7}
        wanted = QueueReceiveRequest(**where, holder="me", max_messages=1, visibility_ms=1000, wait_ms=20_000)
        for _ in range(2):
            assert (await ask(town, wanted)).messages == []
        await ask(town, QueueControlRequest(**where, action=STOP_WAITING))
        await town.houses[1].send(queue, b"x")
        await turn()
        assert (2, ApiKey.QUEUE_DELIVER) not in town.asked
        assert await town.houses[1].counts(queue) == (1, 0, 0)
