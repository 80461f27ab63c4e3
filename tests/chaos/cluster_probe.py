"""Writes to every partition of a topic all the time, and records when each was last acknowledged."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from tests.clients.waiting import wait_until

from .cluster_load import FAST

PACE_S: Final = 0.01
PATIENCE_S: Final = 90.0
_SETTINGS: Final[dict[str, Any]] = {
    **FAST,
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    # Of a leader that is gone and not replaced yet, librdkafka asks only once a second otherwise.
    "topic.metadata.refresh.interval.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "message.timeout.ms": 60_000,
}
"""A client that asks again at once: what is measured is the cluster, not how long clients wait."""


class Probe(threading.Thread):
    """Times are of the steady clock."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name="probe", daemon=True)
        self._topic = topic
        self._partitions = range(partitions)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._answers: dict[int, list[tuple[float, float]]] = defaultdict(list)
        """By partition: when a message was given to the producer, and when it was answered."""
        self.failures: list[str] = []
        self._producer = Producer({**_SETTINGS, "bootstrap.servers": bootstrap})

    def run(self) -> None:
        while not self._stopped.is_set():
            for partition in self._partitions:
                value = repr(time.monotonic())
                try:
                    self._producer.produce(self._topic, value=value, partition=partition, on_delivery=self._answered)
                except BufferError:
                    break
            self._producer.poll(PACE_S)
        self._producer.flush(PATIENCE_S)

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        partition, value = message.partition(), message.value()
        assert partition is not None
        assert value is not None
        with self._lock:
            if error is not None:
                self.failures.append(str(error))
            else:
                self._answers[partition].append((float(value), time.monotonic()))

    def answered_s(self, partition: int, since_s: float) -> float | None:
        """When the first message was answered that was sent since; None if none is."""
        with self._lock:
            times = [answered for sent, answered in self._answers[partition] if sent >= since_s]
        return min(times, default=None)

    def resumed_after_s(self, partitions: Iterable[int], since_s: float) -> float:
        """How long it takes until all of them have answered a message that was sent since."""
        wanted = list(partitions)
        wait_until(
            lambda: all(self.answered_s(one, since_s) is not None for one in wanted),
            "all partitions take messages again",
            PATIENCE_S,
            0.05,
        )
        return max((self.answered_s(one, since_s) or 0.0) - since_s for one in wanted)

    def longest_silence_s(self, partitions: Iterable[int], since_s: float) -> float:
        """The longest time without an answer of one of them, from then until now."""
        longest = 0.0
        with self._lock:
            for partition in partitions:
                times = [answered for _, answered in self._answers[partition] if answered >= since_s]
                steps = zip([since_s, *times], times, strict=False)
                longest = max(longest, max((after - before for before, after in steps), default=float("inf")))
        return longest

    def forget(self) -> None:
        with self._lock:
            self._answers.clear()

    def stop(self) -> None:
        self._stopped.set()
        self.join(PATIENCE_S)
