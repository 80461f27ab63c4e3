"""Commands and effects of the transaction coordinator: InitProducer, EndTransaction, WriteMarkers and others.

Besides these it takes an Ask with an AddPartitionsToTxn, EndTxn, CommitSet, DescribeTransactions or ListTransactions
request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.foundation.decision import Ask, ProducerKey, StateRecord
from penstock.foundation.ids import TopicPartition
from penstock.transactions.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducer:
    """InitProducerId with a transactional id. The reply is the InitProducerIdResponse."""

    ask: Ask
    fresh_producer_id: int
    """A producer id never used before; taken if the transactional id is new, or its producer id has no epoch left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsets:
    """AddOffsetsToTxn, with the partition of `__consumer_offsets` that holds the group."""

    ask: Ask
    offsets_partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """EndTxn repeated with a new producer id, after it raised NeedsProducerId."""

    ask: Ask
    fresh_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinTransaction:
    """Adds or verifies partitions before a batch, or a group's offsets, is appended in a transaction.

    The reply is an error code by partition, NONE if it may be written to. See `add_partitions.code_for_producer`.
    """

    transactional_id: str
    producer: ProducerKey
    partitions: tuple[TopicPartition, ...]
    verify_only: bool
    """Whether the partitions must be in the transaction already: before transaction version 2, clients add them."""


class Prepared(NamedTuple):
    """One participant of a CommitSet, prepared before the decision. Valid while its state is still `known`."""

    known: Transaction
    ended: Transaction
    record: StateRecord


class CommitPreparedSet(NamedTuple):
    """CommitSet with many participants, checked and prepared in time slices (`commit_sets.prepare_steps`)."""

    ask: Ask
    prepared: Mapping[str, Prepared]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """Reports that every partition of a transaction has its marker (`WriteMarkers.written()`). No reply value."""

    transactional_id: str
    producer_id: int
    epoch: int
    coordinator_epoch: int
    number: int


class WriteMarkers(NamedTuple):
    """An effect: writes the transaction's marker to all of its partitions, retried until it succeeds."""

    transactional_id: str
    producer: ProducerKey
    committed: bool
    coordinator_epoch: int
    partitions: frozenset[TopicPartition]
    transaction_version: int
    """The field of WriteTxnMarkers v2: from 2 on the marker's epoch is above that of the batches (KIP-1228)."""
    number: int
    """Distinguishes the transactions of one producer epoch: a late `written()` must not complete the next one."""

    def written(self) -> MarkersWritten:
        """Returns the command to send once all markers are written."""
        return MarkersWritten(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            epoch=self.producer.epoch,
            coordinator_epoch=self.coordinator_epoch,
            number=self.number,
        )
