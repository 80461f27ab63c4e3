"""Adds or verifies partitions with the transaction coordinator before a transaction's first batch (KIP-890).

Without this check, a batch that arrives after its transaction has ended would open a new transaction that is never
ended, and would block the last stable offset for ever.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from penstock.broker.broker import Broker
from penstock.cluster.image import NO_LEADER
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import CoordinatorNotAvailable, InvalidTxnState, OutOfOrderSequence, PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.records.batch import read_header
from penstock.records.layout import HEADER_BYTES
from penstock.replication.partition import Partition
from penstock.replication.runtime import Answer
from penstock.transactions.add_partitions import code_for_producer, codes_in, request_to_join
from penstock.transactions.commands import JoinTransaction
from penstock.wire.messages.produce import ProduceRequest
from penstock.wire.schema import Buffer

ABORTABLE_FROM: Final = 11
"""First Produce version whose response may have the error code TRANSACTION_ABORTABLE."""
RETRY_S: Final = 0.01
TRIES_MAX: Final = 10
JOINS_FROM: Final = 12
"""First Produce version in which producing to a partition adds the partition to the transaction."""


_RETRIABLE: Final = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)


Key = tuple[str, bytes, int]
"""A partition as named in a Produce request: topic name, topic id, partition index."""


class FirstBatch(NamedTuple):
    """A batch that would begin a producer's transaction on its partition."""

    key: Key
    partition: Partition
    producer: ProducerKey
    sequence: int
    marker_offset: int
    """Offset of the producer's last transaction marker on the partition when the coordinator was asked."""

    def read_marker_offset(self) -> int:
        return self.partition.log.producers.marker_offset(self.producer.producer_id)

    @property
    def has_new_marker(self) -> bool:
        """Whether a transaction of this producer has ended on the partition since `marker_offset` was read."""
        return self.read_marker_offset() != self.marker_offset


class CannotJoin(PenstockError):
    """The transaction coordinator refused to add or verify a partition."""

    def __init__(self, code: ErrorCode, version: int) -> None:
        super().__init__(f"the transaction coordinator refused the partition with {code.name}")
        sent_code = code_for_producer(code, version >= ABORTABLE_FROM)
        # Producers do not handle these codes, but retry on this one (as in Kafka).
        if code in _RETRIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < JOINS_FROM):
            sent_code = ErrorCode.NOT_ENOUGH_REPLICAS
        self.code = sent_code  # type: ignore[misc]


def find_first_batches(
    request: ProduceRequest, broker: Broker, copies: Mapping[Key, Buffer | PenstockError] = MappingProxyType({})
) -> list[FirstBatch]:
    """Returns the batches of a request that would begin a transaction on their partitions. `copies`: copies of
    batches, read in place of the request's own."""
    found = []
    for topic in request.topic_data:
        table = broker.partitions.by_name.get(topic.name) or broker.partitions.by_id.get(topic.topic_id) or {}
        for data in topic.partition_data:
            partition = table.get(data.index)
            key = topic.name, topic.topic_id, data.index
            records = copies.get(key, data.records)
            if partition is None or not partition.is_online or records is None or isinstance(records, PenstockError):
                continue
            if len(records) < HEADER_BYTES or partition.is_internal:
                continue
            header = read_header(records)
            producer = ProducerKey(header.producer_id, header.producer_epoch)
            if header.is_transactional and not partition.log.producers.is_in_transaction(*producer):
                marker_offset = partition.log.producers.marker_offset(producer.producer_id)
                found.append(FirstBatch(key, partition, producer, header.base_sequence, marker_offset))
    return found


def join(
    request: ProduceRequest,
    version: int,
    first_batches: Sequence[FirstBatch],
    broker: Broker,
    then: Callable[[dict[Key, PenstockError]], None],
) -> None:
    """Asks the transaction coordinator, once for each producer, to add or verify the partitions of
    `first_batches`; calls `then` with the partitions that it refused, and the errors."""
    assert request.transactional_id is not None
    refused: dict[Key, PenstockError] = {}
    by_producer: dict[ProducerKey, list[FirstBatch]] = {}
    for each in first_batches:
        by_producer.setdefault(each.producer, []).append(each)
    waiting = len(by_producer)

    def ask(producer: ProducerKey, asked: list[FirstBatch], tries: int) -> None:
        command = JoinTransaction(
            transactional_id=request.transactional_id or "",
            producer=producer,
            partitions=tuple(each.partition.name for each in asked),
            verify_only=version < JOINS_FROM,
        )
        ask_to_join(command, broker, partial(on_answer, producer, asked, tries))

    def on_answer(
        producer: ProducerKey,
        asked: list[FirstBatch],
        tries: int,
        value: dict[TopicPartition, ErrorCode] | PenstockError,
    ) -> None:
        nonlocal waiting
        stale: list[FirstBatch] = []
        for each in asked:
            code = value.code if isinstance(value, PenstockError) else value[each.partition.name]
            try:
                if not code and tries > 1 and each.has_new_marker:
                    stale.append(each._replace(marker_offset=each.read_marker_offset()))
                else:
                    _check(each, code, version)
            except PenstockError as error:
                refused[each.key] = error
        if stale:  # the marker may be the previous transaction's: ask again
            ask(producer, stale, tries - 1)
            return
        waiting -= 1
        if not waiting:
            then(refused)

    for producer, asked in by_producer.items():
        ask(producer, asked, TRIES_MAX)


def _check(batch: FirstBatch, code: ErrorCode, version: int) -> None:
    """Raises the error for which a batch may not begin a transaction; `code` is the coordinator's error code."""
    partition, producer_id = batch.partition, batch.producer.producer_id
    if code:
        raise CannotJoin(code, version)
    if batch.has_new_marker:
        raise InvalidTxnState(f"{partition.name}: the transaction ended before this batch was appended")
    if version >= JOINS_FROM and batch.sequence != 0 and producer_id not in partition.log.producers.by_id:
        # Every transaction has its own epoch: its first sequence number is 0, or a batch is missing.
        raise OutOfOrderSequence(
            f"producer {producer_id} began its transaction with sequence {batch.sequence}; expected 0"
        )


def ask_to_join(command: JoinTransaction, broker: Broker, answer: Answer, tries: int = TRIES_MAX) -> None:
    """Asks the transaction coordinator to add partitions; retries briefly while a previous transaction is ending."""

    def on_answer(value: dict[TopicPartition, ErrorCode] | PenstockError) -> None:
        is_early = isinstance(value, dict) and ErrorCode.CONCURRENT_TRANSACTIONS in value.values()
        if is_early and tries > 1 and not command.verify_only:
            broker.timer(RETRY_S, lambda: ask_to_join(command, broker, answer, tries - 1))
        else:
            answer(value)

    coordinator = broker.leader_of(broker.transactions, command.transactional_id)
    if coordinator in (broker.node_id, NO_LEADER):
        broker.transactions.submit(command.transactional_id, command, on_answer)
    else:
        broker.ask(coordinator, request_to_join(command), lambda response: on_answer(_codes_in(response, command)))


def _codes_in(response: Any, command: JoinTransaction) -> dict[TopicPartition, ErrorCode] | PenstockError:
    """Returns the error codes in a peer broker's response; CoordinatorNotAvailable if the peer cannot be reached."""
    if isinstance(response, PenstockError):
        return CoordinatorNotAvailable(
            f"the coordinator of {command.transactional_id!r} cannot be reached: {response}"
        )
    codes = codes_in(response)
    lost = ErrorCode(response.error_code) if response.error_code else ErrorCode.COORDINATOR_NOT_AVAILABLE
    return {tp: codes.get(tp, lost) for tp in command.partitions}
