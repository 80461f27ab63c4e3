"""Kafka API 35, DescribeLogDirs."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Int16, Int32, Int64, String, field, request, response, struct


@struct
class DescribableLogDirTopic:
    topic: String
    partitions: Array[Int32]


@request(ApiKey.DESCRIBE_LOG_DIRS, versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: Array[DescribableLogDirTopic] | None


@struct
class DescribeLogDirsPartition:
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


@struct
class DescribeLogDirsTopic:
    name: String
    partitions: Array[DescribeLogDirsPartition]


@struct
class DescribeLogDirsResult:
    error_code: Int16
    log_dir: String
    topics: Array[DescribeLogDirsTopic]
    total_bytes: Int64 = field("4+", default=-1)
    usable_bytes: Int64 = field("4+", default=-1)
    is_cordoned: Bool = field("5+", default=False)


@response(ApiKey.DESCRIBE_LOG_DIRS, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: Int32
    error_code: Int16 = field("3+", default=0)
    results: Array[DescribeLogDirsResult]
