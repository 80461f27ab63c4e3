"""A process of a chain: a source that writes numbers, or a transformer that passes them on to the next topic.

How often what is passed on arrives, when the process or the broker is killed, depends on what is done first.
"""

import sys
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos.child import FENCED, Orders, note, options

PARTITIONS = 4
BATCH_MAX = 100
POLL_S = 0.1
PAUSE_S = 0.02
CALL_S = 30.0
TRANSACTION_MS = 30_000
STAYS = {"metadata.recovery.strategy": "none"}
"""See tests/clients/driver_confluent.py: librdkafka waits for a coordinator from before the restart for ever."""
COMMON = {
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "log_level": 0,
    **STAYS,
}
WRITING = {"linger.ms": 1, "message.timeout.ms": 20_000}

REPLACED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL)
"""Another process has the transactional id, or the name in the group, by now."""

Numbered = tuple[int, bytes]
"""A partition, and what is written to it."""


class Way:
    """How messages are passed on and offsets committed. `pass_on` says whether that worked; else it is done again."""

    def __init__(self, bootstrap: str, name: str, consumer: Consumer, orders: Orders) -> None:
        self._consumer = consumer
        self._orders = orders
        self._failed = 0
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "client.id": name, **COMMON, **WRITING, **self.settings(name)}
        )

    @staticmethod
    @abstractmethod
    def settings(name: str) -> dict[str, object]: ...

    @abstractmethod
    def pass_on(self, topic: str, messages: Iterable[Numbered], following: list[TopicPartition]) -> bool: ...

    def _write(self, topic: str, messages: Iterable[Numbered]) -> bool:
        self._failed = 0
        for partition, value in messages:
            self._producer.produce(topic, value, partition=partition, **self._options())
        is_all_out = self._producer.flush(CALL_S) == 0
        self._orders.at("written")
        return is_all_out and not self._failed

    def _options(self) -> dict[str, Any]:
        return {"on_delivery": self._on_delivery}

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        self._failed += error is not None

    def _commit(self, following: list[TopicPartition]) -> bool:
        try:
            answers = self._consumer.commit(offsets=following, asynchronous=False)
        except KafkaException as error:
            note("not committed", str(error))
            return False
        self._orders.at("committed")
        return all(one.error is None for one in answers)


class ExactlyOnce(Way):
    """Messages and offsets in one transaction."""

    def __init__(self, bootstrap: str, name: str, consumer: Consumer, orders: Orders) -> None:
        super().__init__(bootstrap, name, consumer, orders)
        self._producer.init_transactions(CALL_S)

    @staticmethod
    def settings(name: str) -> dict[str, object]:
        return {"transactional.id": name, "transaction.timeout.ms": TRANSACTION_MS}

    def _options(self) -> dict[str, Any]:
        """No callbacks: the library calls them with a fatal error already raised, and what comes out is neither."""
        return {}

    def pass_on(self, topic: str, messages: Iterable[Numbered], following: list[TopicPartition]) -> bool:
        self._producer.begin_transaction()
        self._orders.at("begun")
        try:
            self._write(topic, messages)  # what fails of it fails the commit
            metadata = self._consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(following, metadata, CALL_S)
            self._orders.at("offsets sent")
            self._producer.commit_transaction(CALL_S)
        except KafkaException as error:
            note("aborted", str(error))
            if not error.args[0].txn_requires_abort():
                raise
            self._producer.abort_transaction(CALL_S)
            return False
        self._orders.at("committed")
        return True


class AtLeastOnce(Way):
    """Write first, commit after: what was written and not committed is written again."""

    @staticmethod
    def settings(name: str) -> dict[str, object]:
        return {"enable.idempotence": True}

    def pass_on(self, topic: str, messages: Iterable[Numbered], following: list[TopicPartition]) -> bool:
        return self._write(topic, messages) and self._commit(following)


class AtMostOnce(Way):
    """Commit first, write after, and write once: what was committed and not written is gone."""

    @staticmethod
    def settings(name: str) -> dict[str, object]:
        return {"enable.idempotence": False, "acks": 1, "message.send.max.retries": 0, "message.timeout.ms": 2000}

    def pass_on(self, topic: str, messages: Iterable[Numbered], following: list[TopicPartition]) -> bool:
        if not self._commit(following):
            return False
        self._write(topic, messages)
        return True


WAYS = {"exactly-once": ExactlyOnce, "at-least-once": AtLeastOnce, "at-most-once": AtMostOnce}


class Source:
    """Writes 0, 1, 2 and so on. How far it has come is an offset that it commits, as if it had read the numbers."""

    def __init__(self, wanted: dict[str, Any], orders: Orders) -> None:
        self._target: str = wanted["target"]
        self._orders = orders
        settings = {"bootstrap.servers": wanted["bootstrap"], "group.id": wanted["group"]}
        self._consumer = Consumer({**settings, "isolation.level": "read_committed", **COMMON})
        self._way = WAYS[wanted["way"]](wanted["bootstrap"], wanted["name"], self._consumer, orders)

    def work(self) -> None:
        note("ready")
        following = self._committed()
        sizes = (1, 7, 20)
        while not self._orders.stopping.wait(PAUSE_S):
            numbers = range(following, following + sizes[following % len(sizes)])
            messages = ((number % PARTITIONS, b"%d" % number) for number in numbers)
            if self._way.pass_on(self._target, messages, [TopicPartition(self._target, 0, numbers.stop)]):
                note("passed on", len(numbers))
                following = numbers.stop
            else:
                following = self._committed()
        self._consumer.close()

    def _committed(self) -> int:
        """With read_committed this waits until open transactions have ended (KIP-447)."""
        while True:
            try:
                (found,) = self._consumer.committed([TopicPartition(self._target, 0)], CALL_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return 0 if found.offset == OFFSET_INVALID else found.offset


class Transformer:
    """A member of a group that reads one topic and passes everything on to another."""

    def __init__(self, wanted: dict[str, Any], orders: Orders) -> None:
        self._source: str = wanted["source"]
        self._target: str = wanted["target"]
        self._orders = orders
        self._batch: list[Message] = []
        settings = {
            "bootstrap.servers": wanted["bootstrap"],
            "group.id": wanted["group"],
            "client.id": wanted["name"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        self._consumer = Consumer({**settings, **COMMON, **wanted["settings"]})
        self._way = WAYS[wanted["way"]](wanted["bootstrap"], wanted["name"], self._consumer, orders)

    def work(self) -> None:
        self._consumer.subscribe(
            [self._source], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )
        note("ready")
        try:
            while not self._orders.stopping.is_set():
                self._gather()
                if self._batch:
                    self._pass_on()
        finally:
            self._consumer.close()

    def _gather(self) -> None:
        """Rebalances happen in here only: later records are our partitions', or the commit is refused."""
        wait_s = POLL_S
        while len(self._batch) < BATCH_MAX and (message := self._consumer.poll(wait_s)) is not None:
            wait_s = 0
            if message.error() is None:
                self._batch.append(message)
            elif not message.error().retriable():
                raise KafkaException(message.error())

    def _pass_on(self) -> None:
        first: dict[int, int] = {}
        following: dict[int, int] = {}
        for message in self._batch:
            first.setdefault(message.partition(), message.offset())
            following[message.partition()] = message.offset() + 1
        messages = [(message.partition(), message.value()) for message in self._batch]
        self._batch = []
        if self._way.pass_on(self._target, messages, self._places(following)):
            note("passed on", len(messages))
        else:
            for place in self._places(first):
                self._go_back(place)

    def _go_back(self, place: TopicPartition) -> None:
        try:
            self._consumer.seek(place)
        except KafkaException as error:
            # It is another one's by now: that one goes on where the last commit was.
            if error.args[0].code() not in (KafkaError._STATE, KafkaError._UNKNOWN_PARTITION):
                raise
            note("not ours", place.partition)

    def _places(self, offsets: dict[int, int]) -> list[TopicPartition]:
        return [TopicPartition(self._source, partition, offset) for partition, offset in offsets.items()]

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        note("assigned", [one.partition for one in partitions])

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """What was gathered of them is the next owner's to pass on."""
        gone = {one.partition for one in partitions}
        self._batch = [message for message in self._batch if message.partition() not in gone]
        note("revoked", sorted(gone))


def main() -> int:
    wanted = options()
    orders = Orders()
    try:
        (Transformer if "source" in wanted else Source)(wanted, orders).work()
    except KafkaException as error:
        note("failed", str(error))
        if error.args[0].code() not in REPLACED:
            raise
        return FENCED
    return 0


if __name__ == "__main__":
    sys.exit(main())
