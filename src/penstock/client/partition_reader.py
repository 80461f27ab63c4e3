"""Reads one partition from start to end, batch by batch as stored in its log, control batches included."""

from collections.abc import AsyncIterator

from penstock.client.cluster import KafkaClient
from penstock.client.consumer import FETCH_BY_NAME
from penstock.client.errors import refusal
from penstock.client.offsets import When, list_offsets
from penstock.foundation.ids import TopicPartition
from penstock.records.batch import BatchHeader, batches
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

FETCH_BYTES = 1 << 20


async def read_partition(client: KafkaClient, tp: TopicPartition) -> AsyncIterator[tuple[memoryview, BatchHeader]]:
    """Yields every committed batch with its header, up to the high watermark at the time of the call."""
    offset = (await list_offsets(client, [tp], When.EARLIEST))[tp].offset
    end = (await list_offsets(client, [tp], When.LATEST))[tp].offset
    limit_bytes = FETCH_BYTES
    while offset < end:
        data = memoryview((await _fetch(client, tp, offset, limit_bytes)).records or b"")
        before = offset
        for at, header in batches(data):
            if header.next_offset > offset:
                yield data[at : at + header.size_bytes], header
                offset = header.next_offset
        if offset > before:
            limit_bytes = FETCH_BYTES
        elif data:
            limit_bytes *= 2  # the response held no complete batch
        else:
            return  # compaction removed all records from here on


async def _fetch(client: KafkaClient, tp: TopicPartition, offset: int, limit_bytes: int) -> PartitionData:
    async def attempt() -> PartitionData:
        leader = await client.leader(tp)
        wanted = FetchPartition(
            partition=tp.partition,
            current_leader_epoch=leader.leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=limit_bytes,
        )
        topics = [FetchTopic(topic=tp.topic, partitions=[wanted])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=limit_bytes, topics=topics)
        connection = await client.connection(leader.leader)
        response: FetchResponse = await connection.request(request, version_max=FETCH_BY_NAME)
        data: PartitionData = response.responses[0].partitions[0]
        if response.error_code or data.error_code:
            raise refusal(response.error_code or data.error_code, f"partition {tp}")
        return data

    return await client.retrying(attempt, topics={tp.topic})
