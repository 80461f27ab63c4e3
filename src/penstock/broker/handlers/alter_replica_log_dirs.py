"""AlterReplicaLogDirs: moves nothing; succeeds only for replicas that are already in the given log directory."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


@handles(ApiKey.ALTER_REPLICA_LOG_DIRS)
def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, call: Call, broker: Broker
) -> AlterReplicaLogDirsResponse:
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            results.setdefault(topic.name, []).extend(
                AlterReplicaLogDirPartitionResult(
                    partition_index=number, error_code=_code(call, broker, folder.path, topic.name, number)
                )
                for number in topic.partitions
            )
    return AlterReplicaLogDirsResponse(
        throttle_time_ms=0,
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in results.items()
        ],
    )


def _code(call: Call, broker: Broker, path: str, name: str, number: int) -> ErrorCode:
    if not call.allows_in_cluster(Operation.ALTER):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if path != broker.log_dir:
        return ErrorCode.LOG_DIR_NOT_FOUND
    topic = broker.image.by_name.get(name)
    replicas = {} if topic is None else broker.partitions.replicas.get(topic.topic_id, {})
    return ErrorCode.NONE if number in replicas else ErrorCode.REPLICA_NOT_AVAILABLE
