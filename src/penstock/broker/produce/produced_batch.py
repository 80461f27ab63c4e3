"""The batches of a Produce request: partition, records and result of each batch."""

from collections.abc import Iterable
from itertools import islice
from operator import attrgetter
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import allows_topic
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import NotAuthorized, NotLeaderOrFollower, PenstockError, TopicAuthorizationFailed
from penstock.foundation.ids import TopicIdPartition
from penstock.log.admission import RejectedRecords
from penstock.replication.errors import InternalTopicWrite
from penstock.replication.partition import Partition
from penstock.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.wire.schema import Buffer

_RESULT: Final = attrgetter("result")


class ProducedBatch:
    """One batch of a Produce request. Each stage handles the batches that have no `result` yet."""

    __slots__ = ("end_offset", "index", "may_begin", "partition", "records", "result")

    partition: Partition
    """The partition, led by this broker. Not set if the partition was not found: `result` has the error."""

    def __init__(self, data: PartitionProduceData) -> None:
        self.index = data.index
        self.records: Buffer = data.records or b""
        self.result: PartitionProduceResponse | None = None
        """The partition's part of the Produce response; None until the batch is appended or refused."""
        self.may_begin = False
        """Whether the batch may begin a transaction on its partition: the coordinator has agreed (KIP-890)."""
        self.end_offset = 0
        """The offset after the batch's last record; set when the batch is appended."""

    def refuse(self, error: PenstockError, code: ErrorCode | None = None) -> None:
        """Sets an error as the result; `code`, if given, is sent in place of the error's own code."""
        rows = error.rows if isinstance(error, RejectedRecords) else ()
        reasons = error.reasons if isinstance(error, RejectedRecords) else {}
        self.result = PartitionProduceResponse(
            index=self.index,
            error_code=error.code if code is None else code,
            base_offset=-1,
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=row, batch_index_error_message=reasons.get(row)) for row in rows
            ],
            error_message=error.message,
        )


def find_partitions(request: ProduceRequest, call: Call, broker: Broker) -> list[ProducedBatch]:
    """Returns the batches of a request, in order; batches that cannot be written here have an error as `result`."""
    batches = []
    refused = _refusal(request, call)
    for topic in request.topic_data:
        for data in topic.partition_data:
            batch = ProducedBatch(data)
            batches.append(batch)
            try:
                if refused is not None:
                    raise refused
                if not allows_topic(topic, Operation.WRITE, call, broker):
                    raise TopicAuthorizationFailed(f"{call.principal} may not write to this topic")
                batch.partition = partition = broker.partition(topic.name, topic.topic_id, data.index)
                if partition.is_internal:
                    raise InternalTopicWrite(partition.name)
            except PenstockError as error:
                batch.refuse(error)
                if isinstance(error, NotLeaderOrFollower):
                    topic_id = broker.topic(topic.name, topic.topic_id).topic_id
                    replica = broker.partitions.replica(TopicIdPartition(topic_id, data.index))
                    if replica is not None and replica.is_online:
                        # If this follower becomes leader, the producer's later batches must wait for the retry.
                        replica.log.refuse(batch.records, error)
    return batches


def _refusal(request: ProduceRequest, call: Call) -> NotAuthorized | None:
    """Returns the error for all batches if the client may not use the transactional id of the request."""
    name = request.transactional_id
    if name is None or call.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return None
    return NotAuthorized.of(call.principal, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)


def copy_records(batches: Iterable[ProducedBatch]) -> None:
    """Copies the batches' records out of the receive buffer, which other requests reuse while this request waits."""
    for batch in batches:
        batch.records = bytearray(batch.records)


def build_response(request: ProduceRequest, batches: Iterable[ProducedBatch]) -> ProduceResponse:
    """Returns the response to a request; all its batches must have a result."""
    results = map(_RESULT, batches)
    topics = []
    for topic in request.topic_data:
        parts = list(islice(results, len(topic.partition_data)))
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts))
    return ProduceResponse(responses=topics)
