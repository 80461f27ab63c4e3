"""WriteTxnMarkers: a transaction has ended; say so in the partitions that this broker leads."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.codes import ErrorCode
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
    writing.answer_with(results)


def _write(marker: WritableTxnMarker, broker: Broker, writing: "_Writing") -> WritableTxnMarkerResult:
    producer = ProducerKey(marker.producer_id, marker.producer_epoch)
    topics = []
    for topic in marker.topics:
        results = []
        for number in topic.partition_indexes:
            result = WritableTxnMarkerPartitionResult(partition_index=number, error_code=0)
            try:
                partition = broker.partition(topic.name, NIL_UUID, number)
                written = partition.write_marker(
                    producer,
                    marker.transaction_result,
                    marker.coordinator_epoch,
                    broker.clock.now_ms(),
                    marker.transaction_version,
                )
                writing.wait_for(partition, written.last_offset + 1, result)
            except PenstockError as refused:
                result = WritableTxnMarkerPartitionResult(partition_index=number, error_code=refused.code)
            results.append(result)
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)


class _Writing:
    """Answers when everything that was written is committed."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._waiting = 1  # for the answer itself
        self._results: list[WritableTxnMarkerResult] = []
        self._lost: set[int] = set()
        """The results of what was written and not committed: this broker has ceased to lead."""

    def wait_for(self, partition: Partition, end_offset: int, result: WritableTxnMarkerPartitionResult) -> None:
        self._waiting += 1

        def look() -> None:
            if not partition.has_committed(end_offset):
                self._lost.add(id(result))
            self._one_done()

        partition.when_committed(end_offset, look)

    def answer_with(self, results: list[WritableTxnMarkerResult]) -> None:
        self._results = results
        self._one_done()

    def _one_done(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._call.answer(WriteTxnMarkersResponse(markers=[self._told(result) for result in self._results]))

    def _told(self, result: WritableTxnMarkerResult) -> WritableTxnMarkerResult:
        if not self._lost:
            return result
        topics = [
            WritableTxnMarkerTopicResult(name=topic.name, partitions=[self._told_of(one) for one in topic.partitions])
            for topic in result.topics
        ]
        return WritableTxnMarkerResult(producer_id=result.producer_id, topics=topics)

    def _told_of(self, one: WritableTxnMarkerPartitionResult) -> WritableTxnMarkerPartitionResult:
        if id(one) not in self._lost:
            return one
        return WritableTxnMarkerPartitionResult(
            partition_index=one.partition_index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
