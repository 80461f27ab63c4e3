"""Kafka API 27, WriteTxnMarkers."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Int8, Int16, Int32, Int64, String, field, request, response, struct


@struct
class WritableTxnMarkerTopic:
    name: String
    partition_indexes: Array[Int32]


@struct
class WritableTxnMarker:
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: Array[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = field("2+", default=0)


@request(ApiKey.WRITE_TXN_MARKERS, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: Array[WritableTxnMarker]


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32
    error_code: Int16


@struct
class WritableTxnMarkerTopicResult:
    name: String
    partitions: Array[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerResult:
    producer_id: Int64
    topics: Array[WritableTxnMarkerTopicResult]


@response(ApiKey.WRITE_TXN_MARKERS, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: Array[WritableTxnMarkerResult]
