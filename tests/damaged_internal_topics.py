"""Internal topics with unreadable records, damage and wrong settings.

Everything here is done to a data folder while its broker is stopped, or to the store that brokers share.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as TopicPartitionOffset
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cluster import keys
from penstock.cluster.image import PartitionState, Topic
from penstock.cluster.metadata import Metadata
from penstock.coordination.store import ABSENT, Put
from penstock.coordination.stores import open_store
from penstock.foundation.host import boot_id
from penstock.foundation.ids import TopicPartition, uuid_bytes
from penstock.log.disk import OsDisk
from penstock.log.folder import LogFolder
from penstock.log.recovery import open_log
from penstock.log.settings import LogSettings
from penstock.records.batch import assemble
from penstock.records.build import Record, build_batch, build_pairs
from penstock.records.compression import Codec
from penstock.replication.runtimes import java_hash
from tests.clients.waiting import wait_until

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
TOPIC = "orders"
PASSING = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
    }
)
NOW_MS = 1_700_000_000_000
NODE = 1


# -- logs


def log_folders(data_dir: Path, topic: str) -> dict[int, str]:
    """The log of each partition of a topic, below the data folder."""
    found = {}
    for path in (data_dir / "logs" / topic).iterdir():
        number, _, topic_id = path.name.partition(".")
        name = TopicPartition(topic, int(number))
        assert LogFolder.path(name, uuid_bytes(topic_id)) == str(path.relative_to(data_dir))
        found[int(number)] = str(path.relative_to(data_dir))
    return found


def append_to_logs(data_dir: Path, topic: str, batches: Iterable[bytes | bytearray]) -> int:
    """Append batches to every partition of a topic, as a broker that refuses nothing would; how many partitions."""
    folders = log_folders(data_dir, topic)
    batches = [bytes(batch) for batch in batches]
    for folder in folders.values():
        append_to_log(data_dir, data_dir / folder, batches)
    return len(folders)


def append_to_log(data_dir: Path, folder: Path, batches: Iterable[bytes | bytearray]) -> None:
    settings = LogSettings.of({"cleanup.policy": "compact"})
    path = str(folder.relative_to(data_dir))
    log = open_log(OsDisk(data_dir), path, settings, boot_id=boot_id(), now_ms=NOW_MS).log
    for batch in batches:
        log.append_own(bytearray(batch), max(0, log.epochs.at(log.end_offset - 1)), NOW_MS)
    log.close()


def unreadable(topic: str) -> list[bytearray]:
    """Batches with valid checksums that hold what the topic's coordinators cannot read: six records together."""
    kind = b"\x00\x01" if topic == OFFSETS else b"\x00\x00"
    named = kind + b"\x00\x05group" + (b"\x00\x01t\x00\x00\x00\x00" if topic == OFFSETS else b"")
    broken = assemble(
        b"\xff" * 40,
        count=2,
        attributes=Codec.ZSTD,
        base_offset=0,
        last_offset_delta=1,
        leader_epoch=0,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )
    return [
        build_pairs([(b"x", b"x")], NOW_MS),  # what one producer wrote, once, and nothing was loaded any more
        build_pairs([(kind + b"\x00\xffgroup", b"x"), (named, b"\x00\x09 of a later version")], NOW_MS),
        build_batch([Record(key=None, value=b"x", timestamp_ms=NOW_MS)]),
        broken,
    ]


UNREADABLE_COUNT = 6


def damage(data_dir: Path, topic: str, partition: int) -> None:
    """Flip a bit in the last byte of a partition's last segment that is not empty."""
    folder = data_dir / log_folders(data_dir, topic)[partition]
    path = max(path for path in folder.glob("*.log") if path.stat().st_size)
    data = bytearray(path.read_bytes())
    end = len(data.rstrip(b"\0"))
    data[end - 1] ^= 1
    path.write_bytes(data)


# -- groups, with a real client


def make_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result()


def commit_all(bootstrap: str, groups: Sequence[str]) -> dict[str, int]:
    """Commits an offset for every group; the offsets."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = {group: 1000 + number for number, group in enumerate(groups)}
    for group, offset in wanted.items():
        request = ConsumerGroupTopicPartitions(group, [TopicPartitionOffset(TOPIC, 0, offset)])

        def is_committed(request: ConsumerGroupTopicPartitions = request) -> bool:
            (answer,) = admin.alter_consumer_group_offsets([request]).values()
            try:
                error = answer.result().topic_partitions[0].error
            except KafkaException as failed:
                error = failed.args[0]
            assert error is None or error.code() in PASSING, error
            return error is None

        wait_until(is_committed, f"an offset of {group} is committed")  # coordinators may still be loading
    return wanted


def committed(bootstrap: str, groups: Sequence[str]) -> dict[str, int]:
    """What each group has committed; coordinators that are being loaded are waited for."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found: dict[str, int] = {}

    def has_answered(group: str) -> bool:
        request = ConsumerGroupTopicPartitions(group, [TopicPartitionOffset(TOPIC, 0)])
        (answer,) = admin.list_consumer_group_offsets([request]).values()
        try:
            found[group] = answer.result().topic_partitions[0].offset
        except KafkaException as error:
            if error.args[0].code() not in PASSING:
                raise
            return False
        return True

    for group in groups:
        wait_until(partial(has_answered, group), f"the offset of {group}", 60)
    return found


# -- the store


def make_wrongly(store: str, data_dir: Path, topic: str, partitions: int = 1, **configs: str) -> None:
    """Create an internal topic as Metadata did before: with the defaults of ordinary topics."""
    values = {name.replace("_", "."): value for name, value in configs.items()}

    async def work() -> None:
        opened = await open_store(store, data_dir, 6.0)
        metadata = Metadata(opened)
        await metadata.start()
        image, topic_id = metadata.image, topic.encode().ljust(16, b"-")[:16]
        known = image.brokers.get(NODE)  # none while it is stopped; then it is elected when it is back
        state = PartitionState(
            replicas=(NODE,),
            leader=NODE,
            leader_epoch=0,
            isr=(NODE,),
            leader_broker_epoch=known.epoch if known is not None else 0,
        )
        made = Topic(topic_id=topic_id, name=topic, configs=values, count=partitions)
        await opened.transact(
            [
                Put(keys.topic_name(topic), keys.encode(keys.topic(topic_id)), ABSENT),
                Put(keys.topic(topic_id), made.dump(), ABSENT),
                *(Put(keys.partition(topic_id, number), state.dump(), ABSENT) for number in range(partitions)),
            ]
        )
        await metadata.close()
        await opened.close()

    asyncio.run(work())


def groups_by_partition(groups: Iterable[str], count: int) -> Mapping[str, int]:
    """Where the state of each group lives."""
    return {group: java_hash(group) % count for group in groups}
