"""DescribeLogDirs: returns the size of each partition, and the total and free disk space."""

from collections.abc import Awaitable, Iterator

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import in_cluster
from penstock.broker.registry import handles
from penstock.broker.sliced_answers import with_breaks
from penstock.cluster.settings import CORDONED
from penstock.foundation.acls import Operation
from penstock.foundation.steps import Steps
from penstock.replication.partition import Partition
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


@handles(ApiKey.DESCRIBE_LOG_DIRS, in_cluster(Operation.DESCRIBE))
def describe_log_dirs(
    request: DescribeLogDirsRequest, call: Call, broker: Broker
) -> Awaitable[DescribeLogDirsResponse]:
    return broker.slices.run(_describe(request, broker))


def _wanted(request: DescribeLogDirsRequest, broker: Broker) -> Iterator[Partition]:
    if request.topics is None:
        yield from broker.partitions
        return
    for topic in request.topics:
        known = broker.image.by_name.get(topic.topic)
        replicas = broker.partitions.replicas.get(known.topic_id, {}) if known is not None else {}
        for number in topic.partitions:
            if number in replicas:
                yield replicas[number]


def _describe(request: DescribeLogDirsRequest, broker: Broker) -> Steps[DescribeLogDirsResponse]:
    by_topic: dict[str, dict[int, DescribeLogDirsPartition]] = {}
    for partition in with_breaks(_wanted(request, broker)):
        if partition is None:
            yield
        elif partition.is_online:
            name, number = partition.name
            by_topic.setdefault(name, {})[number] = _partition(partition)
    total_bytes, usable_bytes = broker.disk_space()
    return DescribeLogDirsResponse(
        throttle_time_ms=0,
        results=[
            DescribeLogDirsResult(
                error_code=0,
                log_dir=broker.log_dir,
                topics=[
                    DescribeLogDirsTopic(name=name, partitions=list(found.values()))
                    for name, found in by_topic.items()
                ],
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
                is_cordoned=bool(broker.configs[CORDONED]),
            )
        ],
    )


def _partition(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.name.partition,
        partition_size=partition.log.size_bytes,
        offset_lag=partition.log.end_offset - partition.high_watermark,
        is_future_key=False,
    )
