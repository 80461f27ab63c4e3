"""The private queue APIs between brokers, called by a client that is not a broker."""

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

from .queue_harness import turn, values
from .two_brokers import TwoBrokers, two_brokers_at

MESSAGE = QueueNewMessage(key=None, value=b"x", headers=())


async def ask(cluster: TwoBrokers, request: Any) -> Any:
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    cluster.carry(0, 1, request, answered.set_result)
    return await answered


async def test_a_queue_that_is_not_there_or_another_one_is_refused(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create()
        for name, topic_id in (("nowhere", queue.topic_id), (queue.name, bytes(16))):
            send = QueueSendRequest(queue=name, topic_id=topic_id, partition=0, messages=[MESSAGE])
            assert (await ask(cluster, send)).error == "NoSuchQueue"
            receive = QueueReceiveRequest(
                queue=name, topic_id=topic_id, holder="me", max_messages=1, visibility_ms=1000
            )
            assert (await ask(cluster, receive)).error == "NoSuchQueue"
            for action in (COUNT, PURGE, FORGET):
                control = QueueControlRequest(action=action, queue=name, topic_id=topic_id)
                assert (await ask(cluster, control)).error == "NoSuchQueue"
            item = QueueAcknowledgement(partition=0, offset=0, holder="me", ack_type="done")
            (settled,) = (
                await ask(cluster, QueueAcknowledgeRequest(queue=name, topic_id=topic_id, items=[item]))
            ).results
            assert settled.error == "NoSuchQueue"


@pytest.mark.parametrize("partition", [-1, 1, 99])
async def test_a_partition_that_is_not_led_here_is_refused(tmp_path: Path, partition: int) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create()
        where = {"queue": queue.name, "topic_id": queue.topic_id}
        send = QueueSendRequest(**where, partition=partition, messages=[MESSAGE])
        assert (await ask(cluster, send)).error == "NotLeaderOrFollower"
        item = QueueAcknowledgement(partition=partition, offset=0, holder="me", ack_type="done")
        (settled,) = (await ask(cluster, QueueAcknowledgeRequest(**where, items=[item]))).results
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
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create()
        item = QueueAcknowledgement(**{"partition": 0, "offset": 0, "holder": "me", "ack_type": "renew", **wrong})
        request = QueueAcknowledgeRequest(queue=queue.name, topic_id=queue.topic_id, items=[item])
        (settled,) = (await ask(cluster, request)).results
        assert settled.error == "InvalidRequest"


@pytest.mark.parametrize(
    "wrong",
    [{"max_messages": 0}, {"max_messages": -7}, {"visibility_ms": -1}, {"visibility_ms": 2**62}, {"holder": ""}],
)
async def test_receives_that_cannot_be_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create()
        wanted = {"holder": "me", "max_messages": 1, "visibility_ms": 1000, **wrong}
        request = QueueReceiveRequest(queue=queue.name, topic_id=queue.topic_id, **wanted)
        assert (await ask(cluster, request)).error == "InvalidRequest"


async def test_empty_requests_and_unknown_queues_change_nothing(tmp_path: Path) -> None:
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create()
        where = {"queue": queue.name, "topic_id": queue.topic_id}
        assert (await ask(cluster, QueueSendRequest(**where, partition=0, messages=[]))).error == "InvalidRequest"
        assert (await ask(cluster, QueueAcknowledgeRequest(**where, items=[]))).results == []
        assert (await ask(cluster, QueueControlRequest(**where, action=9))).error == "InvalidRequest"
        assert not (await ask(cluster, QueueDeliverRequest(ticket=5, messages=[]))).is_taken
        sent = await ask(cluster, QueueSendRequest(**where, partition=0, messages=[MESSAGE, MESSAGE]))
        assert [each.offset for each in sent.messages] == [0, 1]
        assert values(await cluster.brokers[2].receive(queue, 10)) == [b"x", b"x"]


async def test_a_long_poll_that_is_asked_for_again_waits_only_once(tmp_path: Path) -> None:
    """The other broker has lost the first answer; STOP_WAITING ends both waits."""
    async with two_brokers_at(tmp_path) as cluster:
        queue = await cluster.create(partitions=1)
        where = {"queue": queue.name, "topic_id": queue.topic_id, "node_id": 2, "ticket": 7}
        wanted = QueueReceiveRequest(**where, holder="me", max_messages=1, visibility_ms=1000, wait_ms=20_000)
        for _ in range(2):
            assert (await ask(cluster, wanted)).messages == []
        await ask(cluster, QueueControlRequest(**where, action=STOP_WAITING))
        await cluster.brokers[1].send(queue, b"x")
        await turn()
        assert (2, ApiKey.QUEUE_DELIVER) not in cluster.asked
        assert await cluster.brokers[1].counts(queue) == (1, 0, 0)
