"""Verifies, before a transaction's first batch on a partition, that the partition is in the transaction (KIP-890)."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.produce.produced_batch import ProducedBatch
from penstock.broker.transactions.add_partitions import join_transaction
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import OutOfOrderSequence, PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.records.batch import read_header
from penstock.records.layout import HEADER_BYTES
from penstock.transactions.add_partitions import code_for_producer

ABORTABLE_FROM: Final = 11
"""First Produce version whose response may have the error code TRANSACTION_ABORTABLE."""
JOINS_FROM: Final = 12
"""First Produce version in which producing to a partition adds the partition to the transaction."""
_RETRIABLE: Final = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)


def find_first_batches(batches: Iterable[ProducedBatch]) -> dict[ProducerKey, list[ProducedBatch]]:
    """Returns the batches that would begin a transaction on their partitions, by producer id and epoch."""
    found: dict[ProducerKey, list[ProducedBatch]] = {}
    for batch in batches:
        if batch.result is not None or not batch.partition.is_online or len(batch.records) < HEADER_BYTES:
            continue
        header = read_header(batch.records)
        producer = ProducerKey(header.producer_id, header.producer_epoch)
        if header.is_transactional and not batch.partition.log.producers.is_in_transaction(*producer):
            found.setdefault(producer, []).append(batch)
    return found


def verify_first_batches(
    transactional_id: str, version: int, batches: Iterable[ProducedBatch], broker: Broker, then: Callable[[], None]
) -> None:
    """Asks the transaction coordinator to add (before Produce v12: to verify) the partitions on which a
    transaction has its first batch. Sets `may_begin` of accepted batches, refuses the others, then calls `then`."""
    first_batches = find_first_batches(batches)
    waiting = len(first_batches)
    if not waiting:
        then()

    def on_joined(asked: list[ProducedBatch], refused: dict[TopicPartition, PenstockError]) -> None:
        nonlocal waiting
        for batch in asked:
            try:
                if batch.partition.name in refused:
                    raise refused[batch.partition.name]
                if version >= JOINS_FROM:
                    _check_sequence(batch)
                batch.may_begin = True
            except PenstockError as error:
                batch.refuse(error, _code_for_producer(error.code, version))
        waiting -= 1
        if not waiting:
            then()

    for producer, asked in first_batches.items():
        partitions = [batch.partition for batch in asked]
        verify_only = version < JOINS_FROM
        join_transaction(transactional_id, producer, partitions, verify_only, broker, partial(on_joined, asked))


def _check_sequence(batch: ProducedBatch) -> None:
    """Raises OutOfOrderSequence if a transaction's first batch has a sequence number above 0: a batch is missing."""
    header = read_header(batch.records)
    if header.base_sequence != 0 and header.producer_id not in batch.partition.log.producers.by_id:
        raise OutOfOrderSequence(
            f"producer {header.producer_id} began its transaction with sequence {header.base_sequence}; expected 0"
        )


def _code_for_producer(code: ErrorCode, version: int) -> ErrorCode:
    # Producers do not handle these codes, but retry on NOT_ENOUGH_REPLICAS (as in Kafka).
    if code in _RETRIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < JOINS_FROM):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code_for_producer(code, version >= ABORTABLE_FROM)
