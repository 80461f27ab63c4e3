"""Mistakes of operators, and lost data: each is made without other faults, and has a known outcome.

They are made one at a time: a folder that is removed from one broker is data that is lost, and whether anything else
may be lost at the same time is another question.
"""

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.clients.waiting import wait_until
from tests.power_loss import lose_power

from .cluster_broker import ClusterBroker
from .cluster_lab import Lab
from .cluster_load import FAST

END_S: Final = 60.0
FOREIGN_NODE: Final = 7

Oddity = Callable[[Lab, random.Random], None]


def _refused(lab: Lab, other: ClusterBroker, words: str) -> None:
    """It must end by itself, and say why."""
    other.start()
    other.is_wanted = False
    wait_until(lambda: other.exit_code is not None, "the broker is refused", END_S, 0.05)
    code = other.wait_stopped()
    assert code != 0, "a broker that was refused ended as if all was well"
    assert words in other.log, f"expected {words!r}:\n{other.log[-2000:]}"


def _is_one_of_us(lab: Lab, broker: ClusterBroker) -> None:
    """It runs, and the cluster counts on it."""
    lab.tend()
    assert broker.is_running
    lab.wait_whole()


def second_with_another_folder(lab: Lab, rng: random.Random) -> None:
    """A second process with the same number is refused, and the first one does not notice."""
    broker = rng.choice(list(lab.brokers.values()))
    pid = broker.pid
    other = lab.add_other("second", broker.node_id, lab.folder / f"second-{len(lab.others)}-data")
    _refused(lab, other, f"broker {broker.node_id} is registered at {broker.address}")
    _is_one_of_us(lab, broker)
    assert broker.pid == pid, "the first one was restarted"


def second_with_the_same_folder(lab: Lab, rng: random.Random) -> None:
    broker = rng.choice(list(lab.brokers.values()))
    pid = broker.pid
    _refused(lab, lab.add_other("same", broker.node_id, broker.data_dir), "is used by another penstock process")
    _is_one_of_us(lab, broker)
    assert broker.pid == pid, "the first one was restarted"


def second_with_a_copy_of_the_folder(lab: Lab, rng: random.Random) -> None:
    """As after a machine was cloned: the later process is the broker, and the earlier one must give way."""
    broker = rng.choice([each for each in lab.brokers.values() if each.data_dir != lab.small_disk])
    copy = lab.folder / f"copy-{len(lab.others)}-data"
    broker.pause()
    shutil.copytree(broker.data_dir, copy)
    other = lab.add_other("copy", broker.node_id, copy)
    other.start()
    try:
        other.wait_ready()
        broker.is_wanted = False
        broker.resume()
        wait_until(lambda: broker.exit_code is not None, "the first one gives way", END_S, 0.05)
        assert broker.wait_stopped() != 0
        assert "has registered as broker" in broker.log[-3000:], broker.log[-3000:]
        lab.wait_whole()
    finally:
        other.clear()
    # What was acknowledged since then is in the copy.
    shutil.rmtree(broker.data_dir)
    copy.rename(broker.data_dir)
    broker.start()
    broker.wait_ready()
    _is_one_of_us(lab, broker)


def folder_of_another_cluster(lab: Lab, rng: random.Random) -> None:
    data = lab.folder / "foreign-data"
    if not data.exists():
        alone = lab.add_other("foreign", FOREIGN_NODE, data, store="embedded")
        alone.start()
        alone.wait_ready()
        alone.stop()
    _refused(lab, lab.add_other("foreign", FOREIGN_NODE, data), "belongs to cluster")


def lost_folder(lab: Lab, rng: random.Random) -> None:
    """A partition's folder is gone from a broker that was stopped: it is fetched again from the leader."""
    broker = rng.choice(list(lab.brokers.values()))
    if rng.random() < 0.5:
        broker.kill()
    else:
        broker.stop()
    shutil.rmtree(rng.choice(_folders(broker)))
    broker.start()
    broker.wait_ready()
    _is_one_of_us(lab, broker)


def lost_power(lab: Lab, rng: random.Random) -> None:
    """A machine stops under its broker, with all that was not synced; perhaps it takes the broker two starts."""
    broker = rng.choice(list(lab.brokers.values()))
    broker.kill()
    assert lose_power(broker.data_dir) > 0, "nothing was lost, and so nothing is shown"
    broker.start()
    if rng.random() < 0.5:
        time.sleep(rng.uniform(0.2, 1.0))  # anywhere in its start
        broker.kill()
        broker.start()
    broker.wait_ready()
    _is_one_of_us(lab, broker)


def _folders(broker: ClusterBroker) -> list[Path]:
    return [path for path in sorted((broker.data_dir / "logs").glob("*/*")) if path.is_dir()]


def restarted_replica_in_memory(lab: Lab, rng: random.Random) -> None:
    """What a restarted broker has lost of a memory topic it gets again from the others."""
    before = read("memory", lab)
    broker = rng.choice(list(lab.brokers.values()))
    broker.kill()
    broker.start()
    broker.wait_ready()
    _is_one_of_us(lab, broker)
    gone = before.items() - read("memory", lab).items()
    assert not gone, f"{len(gone)} messages are gone from memory, for example {sorted(gone)[:3]}"


def read(topic: str, lab: Lab) -> dict[tuple[int, int], bytes | None]:
    """All messages that a topic has now, by partition and offset. There must be no transactions in it."""
    consumer = Consumer(
        {**FAST, "bootstrap.servers": lab.bootstrap, "group.id": "unused-odd", "auto.offset.reset": "earliest"}
    )
    found: dict[tuple[int, int], bytes | None] = {}
    try:
        numbers = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers]
        # A partition that is written to all the time has no fixed end: this is its end now.
        spans = {place.partition: consumer.get_watermark_offsets(place, timeout=30) for place in places}
        left = {number: high for number, (low, high) in spans.items() if low < high}
        consumer.assign(places)

        def is_read() -> bool:
            for message in consumer.consume(1000, 0.1):
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                if message.error() is None:
                    found[partition, offset] = message.value()
                    if offset + 1 >= left.get(partition, offset + 2):
                        del left[partition]
            return not left

        wait_until(is_read, f"{topic} is read to its end", END_S, 0.0, seen=left)
    finally:
        consumer.close()
    return found


ODDITIES: Final[dict[str, Oddity]] = {
    "second-with-another-folder": second_with_another_folder,
    "second-with-the-same-folder": second_with_the_same_folder,
    "second-with-a-copy-of-the-folder": second_with_a_copy_of_the_folder,
    "folder-of-another-cluster": folder_of_another_cluster,
    "lost-folder": lost_folder,
    "lost-power": lost_power,
    "restarted-replica-in-memory": restarted_replica_in_memory,
}
