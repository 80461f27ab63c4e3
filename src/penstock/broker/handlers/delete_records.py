"""DeleteRecords: advances the log start offset of partitions. Internal topics are refused."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.cluster.internal_topics import check_mutable
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.errors import OffsetNotAvailable, OffsetOutOfRange, PenstockError, PolicyViolation
from penstock.replication.partition import Partition
from penstock.wire.keys import ApiKey
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

TO_THE_END = -1


@handles(ApiKey.DELETE_RECORDS)
def delete_records(request: DeleteRecordsRequest, call: Call, broker: Broker) -> DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            low, code = -1, 0
            try:
                call.check(Operation.DELETE, ResourceType.TOPIC, topic.name)
                known = broker.image.by_name.get(topic.name)
                check_mutable(topic.name, {} if known is None else known.configs, "delete records of")
                low = _trim(broker.partition(topic.name, b"", wanted.partition_index), wanted.offset)
            except PenstockError as error:
                code = error.code
            results.append(
                DeleteRecordsPartitionResult(
                    partition_index=wanted.partition_index, low_watermark=low, error_code=code
                )
            )
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


def _trim(partition: Partition, offset: int) -> int:
    """Sets and returns the log start offset. Raises PolicyViolation, OffsetOutOfRange or OffsetNotAvailable."""
    log = partition.log
    if not log.settings.deleted:
        raise PolicyViolation(f"{partition.name} has cleanup.policy=compact; add delete to delete records")
    end = partition.high_watermark
    if partition.visibility is not None:
        end = partition.visibility.visible_to(end)  # as consumers see it: hidden delayed messages stay
    offset = end if offset == TO_THE_END else offset
    if not 0 <= offset <= end:
        raise OffsetOutOfRange(f"{partition.name} ends at offset {end}; requested {offset}")
    if partition.visibility is not None and offset > max(log.start_offset, partition.visibility.keep_from):
        raise OffsetNotAvailable(
            f"{partition.name} has delayed messages before offset {offset} that are not copied yet; try again"
        )
    if offset > log.start_offset:
        log.trim(offset)
    return log.start_offset
