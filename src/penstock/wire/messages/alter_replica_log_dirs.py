"""Kafka API 34, AlterReplicaLogDirs (KIP-113)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, String, request, response, struct


@struct
class AlterReplicaLogDirTopic:
    name: String
    partitions: Array[Int32]


@struct
class AlterReplicaLogDir:
    path: String
    topics: Array[AlterReplicaLogDirTopic]


@request(ApiKey.ALTER_REPLICA_LOG_DIRS, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    dirs: Array[AlterReplicaLogDir]


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32
    error_code: Int16


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: String
    partitions: Array[AlterReplicaLogDirPartitionResult]


@response(ApiKey.ALTER_REPLICA_LOG_DIRS, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    throttle_time_ms: Int32
    results: Array[AlterReplicaLogDirTopicResult]
