"""Reads one partition from its start to its end, batch by batch as its log has them: control batches, too."""

from collections.abc import AsyncIterator

from penstock.client.cluster import KafkaClient
from penstock.client.consumer import FETCH_BY_NAME
from penstock.client.errors import refusal
from penstock.client.offsets import When, list_offsets
from penstock.foundation.ids import TopicPartition
from penstock.records.batch import BatchHeader, batches
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

FETCH_BYTES = 1 << 20


async def read_partition(client: KafkaClient, name: TopicPartition) -> AsyncIterator[tuple[memoryview, BatchHeader]]:
    """Yields every committed batch, up to the high watermark at the time of the call."""
    offset = (await list_offsets(client, [name], When.EARLIEST))[name].offset
    end = (await list_offsets(client, [name], When.LATEST))[name].offset
    limit_bytes = FETCH_BYTES
    while offset < end:
        data = memoryview((await _fetch(client, name, offset, limit_bytes)).records or b"")
        before = offset
        for at, header in batches(data):
            if header.next_offset > offset:
                yield data[at : at + header.size_bytes], header
                offset = header.next_offset
        if offset > before:
            limit_bytes = FETCH_BYTES
        elif data:
            limit_bytes *= 2  # not one whole batch came
        else:
            return  # compaction left nothing from here on


async def _fetch(client: KafkaClient, name: TopicPartition, offset: int, limit_bytes: int) -> PartitionData:
    async def ask() -> PartitionData:
        leader = await client.leader(name)
        wanted = FetchPartition(
            partition=name.partition,
            current_leader_epoch=leader.leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=limit_bytes,
        )
        topics = [FetchTopic(topic=name.topic, partitions=[wanted])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=limit_bytes, topics=topics)
        connection = await client.connection(leader.leader)
        response: FetchResponse = await connection.request(request, newest=FETCH_BY_NAME)
        data: PartitionData = response.responses[0].partitions[0]
        if response.error_code or data.error_code:
            raise refusal(response.error_code or data.error_code, f"partition {name}")
        return data

    return await client.retrying(ask, topics={name.topic})
