"""Kafka API 21, DeleteRecords."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, Int64, String, request, response, struct


@struct
class DeleteRecordsPartition:
    partition_index: Int32
    offset: Int64


@struct
class DeleteRecordsTopic:
    name: String
    partitions: Array[DeleteRecordsPartition]


@request(ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: Array[DeleteRecordsTopic]
    timeout_ms: Int32


@struct
class DeleteRecordsPartitionResult:
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


@struct
class DeleteRecordsTopicResult:
    name: String
    partitions: Array[DeleteRecordsPartitionResult]


@response(ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: Int32
    topics: Array[DeleteRecordsTopicResult]
