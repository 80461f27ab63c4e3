"""WriteTxnMarkers: a transaction has ended; say so in the partitions that this broker leads."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import PenstockError
from penstock.replication.partition import Partition
from penstock.wire.keys import ApiKey
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.wire.schema import NIL_UUID


@handles(ApiKey.WRITE_TXN_MARKERS)
def write_txn_markers(request: WriteTxnMarkersRequest, call: Call, broker: Broker) -> None:
    writing = _Writing(call)
    results = [_write(marker, broker, writing) for marker in request.markers]
    writing.answer_with(WriteTxnMarkersResponse(markers=results))


def _write(marker: WritableTxnMarker, broker: Broker, writing: "_Writing") -> WritableTxnMarkerResult:
    producer = ProducerKey(marker.producer_id, marker.producer_epoch)
    topics = []
    for topic in marker.topics:
        results = []
        for number in topic.partition_indexes:
            error = 0
            try:
                partition = broker.partition(topic.name, NIL_UUID, number)
                written = partition.write_marker(
                    producer,
                    marker.transaction_result,
                    marker.coordinator_epoch,
                    broker.clock.now_ms(),
                    marker.transaction_version,
                )
                writing.wait_for(partition, written.last_offset + 1)
            except PenstockError as refused:
                error = refused.code
            results.append(WritableTxnMarkerPartitionResult(partition_index=number, error_code=error))
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)


class _Writing:
    """Answers when everything that was written is committed."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._waiting = 1  # for the answer itself
        self._response: WriteTxnMarkersResponse | None = None

    def wait_for(self, partition: Partition, end_offset: int) -> None:
        self._waiting += 1
        partition.when_committed(end_offset, self._one_done)

    def answer_with(self, response: WriteTxnMarkersResponse) -> None:
        self._response = response
        self._one_done()

    def _one_done(self) -> None:
        self._waiting -= 1
        if not self._waiting and self._response is not None:
            self._call.answer(self._response)
