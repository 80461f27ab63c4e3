"""A process that is a member of a consumer group: it logs what it owns and what it has processed."""

import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.chaos.child import Orders, note, options

POLL_S = 0.1
BATCH_MAX = 100
COMMIT_S = 0.5
RELEASE_S = 0.15
"""How long it still processes a revoked partition: an owner that gets it before then has it too early."""
AGAIN_S = 0.2


class Worker:
    """Processes first and commits after: what it has not committed, the next owner processes again."""

    def __init__(self, wanted: dict[str, Any], orders: Orders) -> None:
        self._topic: str = wanted["topic"]
        self._orders = orders
        self._batch: list[Message] = []
        self._following: dict[int, int] = {}
        """What was processed and not committed yet: the next offset by partition."""
        self._committed_s = time.monotonic()
        self._consumer = Consumer(wanted["settings"])

    def work(self) -> None:
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        note("subscribed")
        try:
            while not self._orders.stopping.is_set():
                self._gather()
                self._process()
                if time.monotonic() > self._committed_s + COMMIT_S:
                    self._commit(asynchronous=True)
        finally:
            self._consumer.close()

    def _gather(self) -> None:
        """Wait for a message, then take what else is there."""
        wait_s = POLL_S
        while len(self._batch) < BATCH_MAX and (message := self._consumer.poll(wait_s)) is not None:
            wait_s = 0
            if message.error() is None:
                self._batch.append(message)
            elif message.error().code() != KafkaError.REBALANCE_IN_PROGRESS and not message.error().retriable():
                # The exception: a member that waits to join while a group changes its protocol has to ask again, as
                # with Kafka. librdkafka passes the error to its application, and asks again.
                raise KafkaException(message.error())

    def _process(self) -> None:
        if self._batch:
            note("processed", [(message.partition(), message.offset()) for message in self._batch])
            self._following |= {message.partition(): message.offset() + 1 for message in self._batch}
            self._batch.clear()

    def _commit(self, *, asynchronous: bool) -> None:
        offsets = [TopicPartition(self._topic, partition, offset) for partition, offset in self._following.items()]
        self._following.clear()
        self._committed_s = time.monotonic()
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=asynchronous)
        except KafkaException as error:
            # Nothing may leave a callback. The messages are processed again, which is what the test allows.
            note("not committed", str(error))

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        note("assigned", [one.partition for one in partitions])

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """They are the next one's only when this returns."""
        note("revoking", [one.partition for one in partitions])
        time.sleep(RELEASE_S)
        self._process()
        self._commit(asynchronous=False)
        note("revoked", [one.partition for one in partitions])

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._batch.clear()
        self._following.clear()
        note("lost", [one.partition for one in partitions])


def is_name_taken(error: KafkaError) -> bool:
    """The name of a static member is taken until the one that was killed is missed (KIP-848)."""
    if error.code() == KafkaError._FATAL:
        return "instance ID is still used" in error.str()  # all that librdkafka says the second time
    return error.code() == KafkaError.UNRELEASED_INSTANCE_ID


def main() -> None:
    orders = Orders()
    while not orders.stopping.is_set():
        try:
            Worker(options(), orders).work()
        except KafkaException as error:
            if not is_name_taken(error.args[0]):
                raise
            note("refused", str(error))
            time.sleep(AGAIN_S)


if __name__ == "__main__":
    sys.exit(main())
