"""DescribeLogDirs: how many bytes each partition takes, and how many are free."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.cluster.settings import CORDONED
from penstock.foundation.ids import TopicPartition
from penstock.replication.partition import Partition
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


@handles(ApiKey.DESCRIBE_LOG_DIRS)
def describe_log_dirs(request: DescribeLogDirsRequest, call: Call, broker: Broker) -> DescribeLogDirsResponse:
    wanted: set[TopicPartition] | None = None
    if request.topics is not None:
        wanted = {TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions}
    by_topic: dict[str, list[Partition]] = {}
    for partition in broker.partitions:
        if partition.is_online and (wanted is None or partition.name in wanted):
            by_topic.setdefault(partition.name.topic, []).append(partition)
    total_bytes, usable_bytes = broker.disk_space()
    return DescribeLogDirsResponse(
        throttle_time_ms=0,
        results=[
            DescribeLogDirsResult(
                error_code=0,
                log_dir=broker.log_dir,
                topics=[
                    DescribeLogDirsTopic(name=name, partitions=[_partition(entry) for entry in partitions])
                    for name, partitions in by_topic.items()
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
