"""A broker that is killed -9 over and over while producers write: nothing acknowledged is lost or doubled."""

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import BrokerProcess

ROUNDS = int(os.environ.get("ROUNDS", "50"))
SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(2**32))))
PARTITIONS = 3


class Writer(threading.Thread):
    """An idempotent producer that numbers its messages, and notes where each one was acknowledged."""

    def __init__(self, name: str, bootstrap: str, rng: random.Random) -> None:
        super().__init__(name=name)
        self._rng = rng
        self._stopped = threading.Event()
        self.sent = 0
        self.acked: dict[str, tuple[int, int]] = {}
        self.failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
                "compression.type": self._rng.choice(["none", "lz4", "zstd"]),
            }
        )

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        name = message.value().partition(b" ")[0].decode()
        if error is not None:
            self.failed.append(f"{name}: {error}")
            return
        assert name not in self.acked
        self.acked[name] = (message.partition(), message.offset())

    def run(self) -> None:
        while not self._stopped.is_set():
            name = f"{self.name}/{self.sent}"
            filler = self._rng.randbytes(self._rng.choice((0, 50, 2000))).hex()
            try:
                self._producer.produce(
                    "crash",
                    value=f"{name} {filler}",
                    partition=self._rng.randrange(PARTITIONS),
                    callback=self._on_delivery,
                )
            except BufferError:
                self._producer.poll(0.05)  # the broker is away; the queue is full
                continue
            self.sent += 1
            self._producer.poll(0)
            if self.sent % 50 == 0:
                self._producer.poll(0.002)

    def finish(self) -> None:
        self._stopped.set()
        self.join()
        assert self._producer.flush(120) == 0


def _read_all(bootstrap: str) -> dict[tuple[int, int], str]:
    """Every message by its partition and offset; offsets must follow each other without a gap."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    found: dict[tuple[int, int], str] = {}
    for partition in range(PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition("crash", partition), timeout=30)
        assert low == 0
        consumer.assign([TopicPartition("crash", partition, 0)])
        expected = 0
        while expected < high:
            for message in consumer.consume(min(1000, high - expected), timeout=30):
                assert message.error() is None
                assert message.offset() == expected, "offsets are contiguous"
                found[partition, expected] = message.value().partition(b" ")[0].decode()
                expected += 1
    consumer.close()
    return found


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_acknowledged_idempotent_records_exist_exactly_once_after_fifty_kills(tmp_path: Path) -> None:
    print(f"SEED={SEED} ROUNDS={ROUNDS}")  # noqa: T201
    rng = random.Random(SEED)
    broker = BrokerProcess(tmp_path).start()
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    configs = {"segment.bytes": str(256 << 10)}  # so that kills meet segments being rolled too
    admin.create_topics([NewTopic("crash", PARTITIONS, 1, config=configs)])["crash"].result(30)
    writers = [Writer(f"w{number}", broker.kafka, random.Random(rng.random())) for number in range(3)]
    for writer in writers:
        writer.start()
    acked_at_kill = []
    for _ in range(ROUNDS):
        before = sum(len(writer.acked) for writer in writers)
        deadline = time.monotonic() + 30
        while sum(len(writer.acked) for writer in writers) < before + rng.randint(1, 2000):
            assert time.monotonic() < deadline, "no message was acknowledged for 30 s"
            threading.Event().wait(0.005)
        broker.kill()
        acked_at_kill.append(sum(len(writer.acked) for writer in writers))
        broker.start()
    for writer in writers:
        writer.finish()
    found = _read_all(broker.kafka)
    broker.finish()
    acked = {place: name for writer in writers for name, place in writer.acked.items()}
    assert [failure for writer in writers for failure in writer.failed] == []
    assert {place: found.get(place) for place in acked} == acked, "an acknowledged message is not where it was put"
    doubled = [name for name, times in Counter(found.values()).items() if times > 1]
    assert doubled == []
    print(f"{ROUNDS} kills, {len(acked)} messages acknowledged, {len(found)} found, none lost, none doubled")  # noqa: T201
