"""Commands and effects of the transaction coordinator: InitProducer, EndTransaction, WriteMarkers and others.

The coordinator also handles a ClientRequest with an AddPartitionsToTxn, EndTxn, CommitSet, DescribeTransactions or
ListTransactions request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.foundation.decision import ClientRequest, ProducerKey, StateRecord
from penstock.foundation.ids import TopicPartition
from penstock.transactions.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducer:
    """Command: InitProducerId with a transactional id. The reply is the InitProducerIdResponse."""

    request: ClientRequest
    fresh_producer_id: int
    """An unused producer id, assigned if the transactional id is new or its producer id has no epoch left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsets:
    """Command: AddOffsetsToTxn, with the index of the `__consumer_offsets` partition that stores the group."""

    request: ClientRequest
    offsets_partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """Command: repeats an EndTxn request with a new producer id, which the broker has reserved because the request
    raised NeedsProducerId: the old id has no epoch left."""

    request: ClientRequest
    fresh_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinTransaction:
    """Command: adds or verifies partitions before a batch or a group's offsets are appended in a transaction.

    The reply is an error code by partition; NONE allows the append. `add_partitions.code_for_producer` converts the
    others to codes for the producer.
    """

    transactional_id: str
    producer: ProducerKey
    partitions: tuple[TopicPartition, ...]
    verify_only: bool
    """Whether to verify only that clients have added the partitions, as before transaction version 2."""


class Prepared(NamedTuple):
    """The state and record of a transaction after its commit, computed in advance from its state `known`. They are
    used only if the transaction is still in state `known` when the commit is decided."""

    known: Transaction
    ended: Transaction
    record: StateRecord


class CommitPreparedSet(NamedTuple):
    """Command: CommitSet (the atomic commit of a Spark batch's transactions) with many transactions, whose new states
    `commit_sets.prepare_steps` has computed."""

    request: ClientRequest
    prepared: Mapping[str, Prepared]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """Command: reports that all partitions of a transaction have a marker; made by `WriteMarkers.written()`. The
    reply is None."""

    transactional_id: str
    producer_id: int
    epoch: int
    coordinator_epoch: int
    number: int


class WriteMarkers(NamedTuple):
    """Request to the broker: write the transaction's marker to all its partitions, with retries until it succeeds."""

    transactional_id: str
    producer: ProducerKey
    committed: bool
    coordinator_epoch: int
    partitions: frozenset[TopicPartition]
    transaction_version: int
    """The transaction version: from 2 on, the marker has a higher epoch than the batches (KIP-1228)."""
    number: int
    """Sequence number of this WriteMarkers, so that a late `written()` cannot complete a later transaction."""

    def written(self) -> MarkersWritten:
        """Returns the command that reports to the coordinator that all markers are written."""
        return MarkersWritten(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            epoch=self.producer.epoch,
            coordinator_epoch=self.coordinator_epoch,
            number=self.number,
        )
