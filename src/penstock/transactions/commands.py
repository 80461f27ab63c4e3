"""What the transaction coordinator is asked, and what it wants done.

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
    """InitProducerId with a transactional id. The reply is the response to it."""

    ask: Ask
    fresh_producer_id: int
    """An id that nobody has had; used if the transactional id is new, or its producer id has no epoch left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsets:
    """AddOffsetsToTxn, with the partition of `__consumer_offsets` that the group lives in."""

    ask: Ask
    offsets_partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """EndTxn once more, after it was answered with NeedsProducerId."""

    ask: Ask
    fresh_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinTransaction:
    """A batch, or a group's offsets, is about to be written in a transaction. The reply is a code by partition.

    The reply is NONE for those that may be written to. See `joining.code_for_producer` for what to tell a client.
    """

    transactional_id: str
    producer: ProducerKey
    partitions: tuple[TopicPartition, ...]
    verify_only: bool
    """Whether the partitions must be in the transaction already: clients before transaction version 2 add them."""


class Prepared(NamedTuple):
    """One participant of a CommitSet, worked out before it is decided. It holds as long as `known` is its state."""

    known: Transaction
    ended: Transaction
    record: StateRecord


class CommitPreparedSet(NamedTuple):
    """CommitSet with many participants, checked and prepared in time slices (`sets.prepare_steps`)."""

    ask: Ask
    prepared: Mapping[str, Prepared]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """Every partition of a transaction has its marker. `WriteMarkers.written()` makes it; the reply is None."""

    transactional_id: str
    producer_id: int
    epoch: int
    coordinator_epoch: int
    number: int


class WriteMarkers(NamedTuple):
    """An effect: write this transaction's marker to all of its partitions, however long it takes."""

    transactional_id: str
    producer: ProducerKey
    committed: bool
    coordinator_epoch: int
    partitions: frozenset[TopicPartition]
    transaction_version: int
    """What WriteTxnMarkers v2 carries: from 2 on the marker's epoch is above that of the batches (KIP-1228)."""
    number: int
    """Tells the transactions of one producer epoch apart: a late `written()` must not end the next one."""

    def written(self) -> MarkersWritten:
        """The command to send when it is done."""
        return MarkersWritten(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            epoch=self.producer.epoch,
            coordinator_epoch=self.coordinator_epoch,
            number=self.number,
        )
