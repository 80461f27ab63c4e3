"""Messages of a queue claimed by their offsets, against a real broker with other workers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.admin import Admin
from penstock.client.claims import Claims, State, find_queue, prepare_group
from penstock.client.cluster import ClientSettings, KafkaClient
from penstock.client.errors import ServerError
from penstock.client.groups import Groups
from penstock.client.producer import Producer
from penstock.client.share_groups import share_group_offsets
from tests.brokers import BrokerProcess
from tests.sqs_clients import JSON, sqs_client

HOLD_MS = 600_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path).start()
    yield process
    process.finish()


@pytest.fixture
def sqs(broker: BrokerProcess, tmp_path: Path) -> Iterator[Any]:
    client = sqs_client(broker.http, JSON, tmp_path)
    yield client
    client.close()


def connected(broker: BrokerProcess) -> KafkaClient:
    return KafkaClient(broker.kafka, settings=ClientSettings(retry_for_s=60.0, backoff_max_s=0.1))


def fill(sqs: Any, name: str, count: int, **attributes: str) -> str:
    url: str = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    for number in range(count):
        more = {"MessageGroupId": "ab"[number % 2]} if name.endswith(".fifo") else {}
        sqs.send_message(QueueUrl=url, MessageBody=str(number), **more)
    return url


def receive(sqs: Any, url: str, **more: Any) -> list[Any]:
    wanted = {"MaxNumberOfMessages": 10, "MessageSystemAttributeNames": ["All"], **more}
    return list(sqs.receive_message(QueueUrl=url, **wanted).get("Messages", []))


async def claims_of(client: KafkaClient, name: str) -> Claims:
    found = await find_queue(client, name)
    return Claims(client, group=name, topic=found.topic, topic_id=found.topic_id)


async def test_workers_get_what_was_not_claimed_and_never_notice(broker: BrokerProcess, sqs: Any) -> None:
    async with connected(broker) as client:
        url = fill(sqs, "dead", 8)
        claims = await claims_of(client, "dead")
        fresh = await claims.survey(0)
        assert (fresh.delivery_ranges, fresh.start, fresh.end) == ((), 0, 8)
        assert await claims.claim(0, "mender", [(1, 2), (5, 5)], HOLD_MS) == [(1, 2), (5, 5)]
        survey = await claims.survey(0)
        assert [(one.first, one.last, one.state, one.holder) for one in survey.delivery_ranges] == [
            (0, 0, State.AVAILABLE, ""),
            (1, 2, State.IN_FLIGHT, "mender"),
            (3, 4, State.AVAILABLE, ""),
            (5, 5, State.IN_FLIGHT, "mender"),
        ]
        assert survey.undelivered_from == 6
        found = receive(sqs, url, VisibilityTimeout=600)
        assert [message["Body"] for message in found] == ["0", "3", "4", "6", "7"]
        assert {message["Attributes"]["ApproximateReceiveCount"] for message in found} == {"1"}
        assert await claims.claim(0, "another", [(0, 7)], HOLD_MS) == []
        assert (await claims.finish(0, "mender", [(1, 2)])).done == 2
        assert (await claims.finish(0, "mender", [(1, 2)])).done == 2, "to say it twice does no harm"
        assert (await claims.undo(0, "mender", [(5, 5)])).done == 1
        (back,) = receive(sqs, url)
        assert (back["Body"], back["Attributes"]["ApproximateReceiveCount"]) == ("5", "1")
        lost = await claims.finish(0, "mender", [(5, 5)])
        assert (lost.done, lost.lost) == (0, ((5, 5),))


async def test_claims_outlive_the_broker(broker: BrokerProcess, sqs: Any) -> None:
    async with connected(broker) as client:
        fill(sqs, "dead", 4)
        claims = await claims_of(client, "dead")
        await claims.claim(0, "mender", [(1, 1), (3, 3)], HOLD_MS)
        await claims.finish(0, "mender", [(1, 1)])
        broker.kill()
        broker.start()
        survey = await claims.survey(0)
        assert [(one.first, one.last, one.holder) for one in survey.delivery_ranges] == [
            (0, 0, ""),
            (2, 2, ""),
            (3, 3, "mender"),
        ]
        assert (await claims.finish(0, "mender", [(3, 3)])).done == 1


async def test_a_message_group_in_flight_is_left_to_its_worker(broker: BrokerProcess, sqs: Any) -> None:
    async with connected(broker) as client:
        url = fill(sqs, "dead.fifo", 6, FifoQueue="true", ContentBasedDeduplication="true")
        (first,) = receive(sqs, url, VisibilityTimeout=600, MaxNumberOfMessages=1)
        assert first["Attributes"]["MessageGroupId"] == "a"
        claims = await claims_of(client, "dead.fifo")
        assert (await find_queue(client, "dead.fifo")).is_fifo
        assert await claims.claim(0, "mender", [(0, 5)], HOLD_MS) == [(1, 1), (3, 3), (5, 5)]
        assert receive(sqs, url) == []


async def test_a_group_on_a_plain_topic_keeps_what_is_done_and_shows_what_is_left(broker: BrokerProcess) -> None:
    async with connected(broker) as client:
        admin = Admin(client)
        await admin.create("letters", partitions=1)
        topic = await admin.topic("letters")
        async with Producer(client) as producer:
            for number in range(5):
                await producer.send("letters", b"%d" % number)
        await prepare_group(client, group="mending", topic_id=topic.topic_id)
        await prepare_group(client, group="mending", topic_id=topic.topic_id)
        claims = Claims(client, group="mending", topic="letters", topic_id=topic.topic_id)
        assert (await claims.survey(0)).start == 0
        assert await claims.claim(0, "mender", [(0, 0), (2, 2)], HOLD_MS) == [(0, 0), (2, 2)]
        await claims.finish(0, "mender", [(0, 0), (2, 2)])
        survey = await claims.survey(0)
        assert ([(one.first, one.last) for one in survey.delivery_ranges], survey.undelivered_from) == ([(1, 1)], 3)
        node_id = await Groups(client).coordinator("mending")
        (offset,) = (await share_group_offsets(client, "mending", node_id)).values()
        assert (offset.start, offset.lag) == (1, 3)


async def test_invalid_claims_are_refused(broker: BrokerProcess, sqs: Any) -> None:
    async with connected(broker) as client:
        fill(sqs, "dead", 2)
        claims = await claims_of(client, "dead")
        for holder, ranges, hold_ms, why in (
            ("", [(0, 0)], HOLD_MS, "characters"),
            ("me", [(1, 0)], HOLD_MS, "must be sorted"),
            ("me", [(1, 1), (0, 0)], HOLD_MS, "must be sorted"),
            ("me", [(-1, 0)], HOLD_MS, "must be sorted"),
            ("me", [(0, 0)], 0, "visibility timeout"),
        ):
            with pytest.raises(ServerError, match=why):
                await claims.claim(0, holder, ranges, hold_ms)
        with pytest.raises(ServerError, match="no queue 'nowhere'"):
            await find_queue(client, "nowhere")
        found = await find_queue(client, "dead")
        with pytest.raises(ServerError, match="name of a queue"):
            await prepare_group(client, group="dead", topic_id=found.topic_id)
