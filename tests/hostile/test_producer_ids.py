"""A partition with as many producer ids as a topic may have: snapshots of their state do not block the event loop."""

from collections.abc import Callable
from pathlib import Path

from penstock.foundation.codes import ErrorCode
from penstock.log.disk import OsDisk
from penstock.log.producer_state import BATCH, WINDOW, Producer, ProducerSnapshot
from penstock.log.snapshots import Snapshots
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.brokers import BrokerProcess
from tests.clients.raw import NOW_MS, RawClient, batch_of
from tests.clients.waiting import wait_until
from tests.damaged_internal_topics import log_folders

from .conftest import print_worst
from .probe import Probe

TOPIC = "orders"
PRODUCERS = 100_000
CONFIGS = {"max.producer.ids": str(PRODUCERS), "segment.bytes": str(1 << 20)}
SNAPSHOT_BYTES_MIN = 16 << 20


def _create(target: BrokerProcess) -> None:
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS.items()]
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=configs)
    with RawClient(target.address) as raw:
        answer = raw.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
        assert answer.topics[0].error_code == ErrorCode.NONE


def _fill(data_dir: Path) -> None:
    """Writes the state of many producers, with five batches each, for a stopped broker with an empty log."""
    window = b"".join(BATCH.pack(number, number, 0, 0, NOW_MS) for number in range(WINDOW))
    producer = Producer(0, NOW_MS, window, WINDOW)
    snapshot = ProducerSnapshot(dict.fromkeys(range(PRODUCERS), producer), ())
    assert Snapshots(OsDisk(data_dir), log_folders(data_dir, TOPIC)[0]).save(0, snapshot)


def _snapshots(data_dir: Path) -> set[Path]:
    folder = data_dir / log_folders(data_dir, TOPIC)[0]
    return {path for path in folder.glob("*.producers") if path.stat().st_size >= SNAPSHOT_BYTES_MIN}


def test_snapshots_of_100_000_producer_ids_are_written_beside_the_event_loop(
    own_target: Callable[..., BrokerProcess],
) -> None:
    """Encoding one took 167 ms of the event loop, for each segment."""
    target = own_target()
    _create(target)
    target.kill()
    _fill(target.data_dir)
    target.start()
    probe = Probe(target)
    before = _snapshots(target.data_dir)
    with probe.watch("producer-snapshots"), RawClient(target.address) as raw:
        for number in range(6):
            batch = batch_of([bytes(900_000)], producer_id=number, producer_epoch=0, base_sequence=WINDOW)
            assert raw.produce(TOPIC, batch).error_code == ErrorCode.NONE
        wait_until(lambda: _snapshots(target.data_dir) - before, "a snapshot of all producers")
    print_worst(probe)
