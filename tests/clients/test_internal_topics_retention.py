"""Internal topics that were created with retention lose nothing, even before they are repaired."""

from pathlib import Path

from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.brokers import BrokerProcess
from tests.damaged_internal_topics import OFFSETS, commit_all, committed, make_topic, make_wrongly

from .raw import RawClient, batch_of
from .waiting import wait_until

QUICK = {"log.retention.check.interval.ms": 50, "log.initial.task.delay.ms": 0, "log.cleaner.backoff.ms": 50}
GROUPS = [f"group-{number}" for number in range(20)]
SHORT = {"retention.ms": "1", "segment.bytes": "1024"}


def wait_for_retention(process: BrokerProcess) -> None:
    """Returns when retention has looked at all partitions: it has trimmed one that was filled just now."""
    with RawClient(process.address) as raw:
        for _ in range(2):
            for _ in range(4):
                assert raw.produce("short", batch_of([bytes(1000)])).error_code == 0
            end = raw.fetch("short", 0).high_watermark
            wait_until(lambda end=end: raw.fetch("short", end).log_start_offset >= end - 1, "it is trimmed", 60)


def test_offsets_outlive_the_retention_of_a_topic_that_was_created_wrongly(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path, QUICK).start()
    try:
        process.stop()
        make_wrongly("embedded", process.data_dir, OFFSETS, retention_ms="1", segment_bytes="1024")
        process.start()
        make_topic(process.kafka)
        admin = AdminClient({"bootstrap.servers": process.kafka})
        admin.create_topics([NewTopic("short", 1, 1, config=SHORT)])["short"].result()
        wanted = commit_all(process.kafka, GROUPS)
        resource = ConfigResource(ResourceType.TOPIC, OFFSETS)
        assert admin.describe_configs([resource])[resource].result()["retention.ms"].value == "1"
        wait_for_retention(process)
        process.kill()
        process.start()
        assert committed(process.kafka, GROUPS) == wanted
        assert f"internal_topic_misconfigured topic={OFFSETS} setting=retention.ms found=1" in process.log
    finally:
        process.finish()
