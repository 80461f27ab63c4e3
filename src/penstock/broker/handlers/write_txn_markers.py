"""WriteTxnMarkers: writes commit or abort markers to partitions led by this broker."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation
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
    pending = _PendingMarkers(call)
    results = [_write(marker, call, broker, pending) for marker in request.markers]
    pending.answer_with(results)


def _write(
    marker: WritableTxnMarker, call: Call, broker: Broker, pending: "_PendingMarkers"
) -> WritableTxnMarkerResult:
    producer = ProducerKey(marker.producer_id, marker.producer_epoch)
    topics = []
    for topic in marker.topics:
        results = []
        for number in topic.partition_indexes:
            result = WritableTxnMarkerPartitionResult(partition_index=number, error_code=0)
            try:
                if not call.allows_in_cluster(Operation.ALTER, audited=False):
                    call.check_cluster(Operation.CLUSTER_ACTION)
                partition = broker.partition(topic.name, NIL_UUID, number)
                written = partition.write_marker(
                    producer,
                    marker.transaction_result,
                    marker.coordinator_epoch,
                    broker.clock.now_ms(),
                    marker.transaction_version,
                )
                pending.wait_for(partition, written.last_offset + 1, result)
            except PenstockError as refused:
                result = WritableTxnMarkerPartitionResult(partition_index=number, error_code=refused.code)
            results.append(result)
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)


class _PendingMarkers:
    """Answers a WriteTxnMarkers request when all its markers are committed."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._waiting = 1  # 1 for `answer_with`
        self._results: list[WritableTxnMarkerResult] = []
        self._uncommitted: set[int] = set()
        """`id()` of each result whose marker was written but not committed, as this broker lost leadership."""

    def wait_for(self, partition: Partition, end_offset: int, result: WritableTxnMarkerPartitionResult) -> None:
        self._waiting += 1

        def on_committed() -> None:
            if not partition.has_committed(end_offset):
                self._uncommitted.add(id(result))
            self._one_done()

        partition.when_committed(end_offset, on_committed)

    def answer_with(self, results: list[WritableTxnMarkerResult]) -> None:
        self._results = results
        self._one_done()

    def _one_done(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._call.answer(
                WriteTxnMarkersResponse(markers=[self._final_result(result) for result in self._results])
            )

    def _final_result(self, result: WritableTxnMarkerResult) -> WritableTxnMarkerResult:
        if not self._uncommitted:
            return result
        topics = [
            WritableTxnMarkerTopicResult(
                name=topic.name, partitions=[self._final_partition_result(one) for one in topic.partitions]
            )
            for topic in result.topics
        ]
        return WritableTxnMarkerResult(producer_id=result.producer_id, topics=topics)

    def _final_partition_result(self, one: WritableTxnMarkerPartitionResult) -> WritableTxnMarkerPartitionResult:
        if id(one) not in self._uncommitted:
            return one
        return WritableTxnMarkerPartitionResult(
            partition_index=one.partition_index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
