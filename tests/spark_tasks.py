"""A task of Spark through our own client: it writes in a transaction, and leaves it open."""

import asyncio
import time
from collections.abc import Iterable

from penstock.client.cluster import KafkaClient, Target
from penstock.client.commit_set import Participant
from penstock.client.errors import check
from penstock.foundation.ids import TopicPartition
from penstock.records.build import Record, build_batch
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

BY_NAME_NEWEST = 12
"""The last version of Produce that names topics; the next one has their ids."""


async def coordinator_of(client: KafkaClient, name: str) -> int:
    """The node id of the broker that coordinates a transactional id."""
    request = FindCoordinatorRequest(key=name, key_type=1, coordinator_keys=[name])
    (found,) = (await client.request(Target.ANY, request)).coordinators
    check(found.error_code, name)
    node_id: int = found.node_id
    return node_id


async def initialise(client: KafkaClient, name: str, timeout_ms: int = 600_000) -> Participant:
    """A producer that has written nothing yet."""

    async def ask() -> Participant:
        answer = await client.request(
            await coordinator_of(client, name),
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms),
        )
        check(answer.error_code, name)
        return Participant(name, answer.producer_id, answer.producer_epoch)

    return await client.retrying(ask)


async def write(
    client: KafkaClient, topic: str, name: str, value: bytes = b"", partitions: Iterable[int] = (0,)
) -> Participant:
    """One record to each of the partitions, in a transaction of its own."""
    made = await initialise(client, name)
    for number in partitions:
        await produce(client, TopicPartition(topic, number), made, value or name.encode())
    return made


async def produce(client: KafkaClient, place: TopicPartition, made: Participant, value: bytes) -> None:
    async def ask() -> None:
        batch = build_batch(
            [Record(key=None, value=value, timestamp_ms=time.time_ns() // 1_000_000)],
            producer_id=made.producer_id,
            producer_epoch=made.epoch,
            base_sequence=0,
            transactional=True,
        )
        data = PartitionProduceData(index=place.partition, records=batch)
        request = ProduceRequest(
            transactional_id=made.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=place.topic, partition_data=[data])],
        )
        leader = (await client.leader(place)).leader
        connection = await client.connection(leader)
        answer = await connection.request(request, version_max=BY_NAME_NEWEST)
        check(answer.responses[0].partition_responses[0].error_code, str(place))

    await client.retrying(ask, topics=[place.topic])


async def state_of(client: KafkaClient, name: str) -> str:
    async def ask() -> str:
        request = DescribeTransactionsRequest(transactional_ids=[name])
        (found,) = (await client.request(await coordinator_of(client, name), request)).transaction_states
        check(found.error_code, name)
        state: str = found.transaction_state
        return state

    return await client.retrying(ask)


async def ended(client: KafkaClient, name: str) -> str:
    """How a transaction has ended, once its partitions know."""
    while not (state := await state_of(client, name)).startswith("Complete"):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return state
