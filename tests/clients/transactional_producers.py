"""Transactional producers: one interface for all client libraries, one call per step."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.errors import ProducerFenced as AiokafkaFenced
from aiokafka.structs import OffsetAndMetadata as AiokafkaOffset
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from .driver_aiokafka import TopicPartition as AiokafkaPartition
from .driver_confluent import QUIET, STAYS, ConfluentDriver
from .driver_kafka_python import KafkaProducer, OffsetAndMetadata, ProducerFencedError
from .driver_kafka_python import TopicPartition as KafkaPythonPartition
from .group_members import Place
from .waiting import PATIENCE_S

READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"


class Fenced(Exception):
    """Another producer has taken the transactional id."""


class Transactor(Protocol):
    """A producer with a transactional id, which it takes in the constructor: the one before is fenced."""

    name: str

    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000) -> None: ...

    def begin(self) -> None: ...

    def send(self, topic: str, value: bytes | None, partition: int = 0, key: bytes | None = None) -> None: ...

    def flush(self) -> None:
        """Have everything that was sent written, within the transaction."""

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        """Commit offsets of a group within the transaction, without being a member of it."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class ConfluentTransactor:
    name = "confluent-kafka"

    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000, **options: Any) -> None:
        self._bootstrap = bootstrap
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": min(timeout_ms, 60_000),
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                **STAYS,
                **QUIET,
                **{name.replace("_", "."): value for name, value in options.items()},
            }
        )
        self._raise_fenced(self.producer.init_transactions, PATIENCE_S)

    @staticmethod
    def _raise_fenced(step: Any, *arguments: Any) -> None:
        try:
            step(*arguments)
        except KafkaException as error:
            if error.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError._FATAL):
                raise Fenced(str(error)) from None
            raise

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, value: bytes | None, partition: int = 0, key: bytes | None = None) -> None:
        while True:
            try:
                self.producer.produce(topic, value, key, partition=partition)
            except BufferError:
                self.producer.poll(0.05)
            else:
                return

    def flush(self) -> None:
        assert self.producer.flush(PATIENCE_S) == 0

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, **QUIET})
        try:
            wanted = [TopicPartition(*place, offset) for place, offset in offsets.items()]
            metadata = consumer.consumer_group_metadata()
            self._raise_fenced(self.producer.send_offsets_to_transaction, wanted, metadata, PATIENCE_S)
        finally:
            consumer.close()

    def commit(self) -> None:
        self._raise_fenced(self.producer.commit_transaction, PATIENCE_S)

    def abort(self) -> None:
        self._raise_fenced(self.producer.abort_transaction, PATIENCE_S)

    def close(self) -> None:
        """Abandons it: an open transaction is left to its timeout, as if the process had died."""


class KafkaPythonTransactor:
    name = "kafka-python"

    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        self.producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=int(PATIENCE_S * 1000),
            linger_ms=1,
            retry_backoff_ms=20,
            reconnect_backoff_max_ms=100,
        )
        self.producer.init_transactions()

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, value: bytes | None, partition: int = 0, key: bytes | None = None) -> None:
        try:
            self.producer.send(topic, value, key, partition=partition)
        except ProducerFencedError as error:
            raise Fenced from error

    def flush(self) -> None:
        self.producer.flush(PATIENCE_S)

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        wanted = {KafkaPythonPartition(*place): OffsetAndMetadata(at, "", -1) for place, at in offsets.items()}
        self.producer.send_offsets_to_transaction(wanted, group)

    def commit(self) -> None:
        try:
            self.producer.commit_transaction()
        except ProducerFencedError as error:
            raise Fenced from error

    def abort(self) -> None:
        try:
            self.producer.abort_transaction()
        except ProducerFencedError as error:
            raise Fenced from error

    def close(self) -> None:
        self.producer.close(timeout=PATIENCE_S)


class AiokafkaTransactor:
    """Its loop only turns within the calls: what it has to send waits for `flush` or the end."""

    name = "aiokafka"

    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        self._runner = asyncio.Runner()
        self._producer = self._run(self._start(bootstrap, transactional_id, timeout_ms))

    @staticmethod
    async def _start(bootstrap: str, transactional_id: str, timeout_ms: int) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            linger_ms=1,
            retry_backoff_ms=20,
        )
        await producer.start()
        return producer

    def _run(self, work: Any) -> Any:
        try:
            return self._runner.run(asyncio.wait_for(work, PATIENCE_S))
        except AiokafkaFenced as error:
            raise Fenced from error

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes | None, partition: int = 0, key: bytes | None = None) -> None:
        self._run(self._producer.send(topic, value, key, partition=partition))

    def flush(self) -> None:
        self._run(self._producer.flush())

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        wanted = {AiokafkaPartition(*place): AiokafkaOffset(at, "") for place, at in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(wanted, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        try:
            self._run(self._producer.stop())
        finally:
            self._runner.close()


TRANSACTORS: Final[Mapping[str, type[Transactor]]] = {
    one.name: one for one in (ConfluentTransactor, KafkaPythonTransactor, AiokafkaTransactor)
}


def read_to_end(bootstrap: str, topic: str, partition: int = 0, isolation: str = READ_COMMITTED) -> list[bytes]:
    """All values that a reader gets up to the end."""
    options = {"isolation_level": isolation, "enable_partition_eof": True, "fetch_wait_max_ms": 10}
    with ConfluentDriver(bootstrap).consumer(**options) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[bytes] = []
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"neither a message nor the end, after {len(found)} messages"
            if message.error() is None:
                found.append(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return found
            else:
                assert message.error().retriable(), message.error()
