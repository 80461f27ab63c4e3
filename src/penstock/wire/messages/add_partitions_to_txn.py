"""Kafka API 24, AddPartitionsToTxn."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Int16, Int32, Int64, String, field, request, response, struct


@struct
class AddPartitionsToTxnTopic:
    name: String
    partitions: Array[Int32]


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = field(default=False)
    topics: Array[AddPartitionsToTxnTopic]


@request(ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    transactions: Array[AddPartitionsToTxnTransaction] = field("4+", default=())
    v3_and_below_transactional_id: String = field("0-3", default="")
    v3_and_below_producer_id: Int64 = field("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = field("0-3", default=0)
    v3_and_below_topics: Array[AddPartitionsToTxnTopic] = field("0-3", default=())


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32
    partition_error_code: Int16


@struct
class AddPartitionsToTxnTopicResult:
    name: String
    results_by_partition: Array[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnResult:
    transactional_id: String
    topic_results: Array[AddPartitionsToTxnTopicResult]


@response(ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: Int32
    error_code: Int16 = field("4+", default=0)
    results_by_transaction: Array[AddPartitionsToTxnResult] = field("4+", default=())
    results_by_topic_v3_and_below: Array[AddPartitionsToTxnTopicResult] = field("0-3", default=())
