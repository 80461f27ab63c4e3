"""Immutable state of one transactional id (TransactionMetadata), its transitions and its record. Pure."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from penstock.foundation.decision import NO_PRODUCER, ProducerKey, StateRecord
from penstock.foundation.errors import MalformedRequest
from penstock.foundation.ids import TopicPartition
from penstock.transactions.records import (
    TRANSACTION,
    TRANSACTION_VERSION,
    PartitionsOfTopic,
    TransactionKey,
    TransactionValue,
)
from penstock.transactions.states import ALLOWED, AT_REST, PREPARED, State
from penstock.wire.state import read_value, state_record

NO_EPOCH: Final = -1
EPOCH_MAX: Final = 2**15 - 1
"""Producer epoch that is only used to fence a producer and never assigned, so that every producer can be fenced."""
EPOCH_LAST: Final = EPOCH_MAX - 1
"""The highest epoch that is assigned with a producer id; after it the producer gets a new producer id."""
NEVER_MS: Final = -1
TV_0: Final = 0
"""Transaction version 0: clients keep their producer epoch when a transaction ends."""
TV_2: Final = 2
"""Transaction version 2: each transaction has its own producer epoch (KIP-890)."""


class Transaction(NamedTuple):
    """A transactional id with its producer and current or last transaction. A tuple for speed: it changes often."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    updated_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NEVER_MS
    version: int = TV_0
    """The transaction version of the client that last changed the transaction."""
    previous_producer_id: int = NO_PRODUCER
    """The producer id before the current one, still used by a client that missed the response with the new id."""
    last_epoch: int = NO_EPOCH
    """The producer's previous epoch, which shows that a request is a retry after a lost response; see end.py."""
    next_producer: ProducerKey | None = None
    """Producer id and epoch to use after the markers are written; None unless the current id has no epoch left."""

    @property
    def producer(self) -> ProducerKey:
        return ProducerKey(self.producer_id, self.epoch)

    @property
    def is_prepared(self) -> bool:
        return self.state in PREPARED

    @property
    def is_at_rest(self) -> bool:
        return self.state in AT_REST

    @property
    def is_commit(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left."""
        return self.epoch >= EPOCH_LAST

    # -- steps

    def initialised(self, producer: ProducerKey, last_epoch: int, timeout_ms: int, now_ms: int) -> "Transaction":
        """Returns the state after InitProducerId, with no ongoing transaction."""
        return self._step(
            State.EMPTY,
            now_ms,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NEVER_MS,
            next_producer=None,
        )

    def joined(self, partitions: Iterable[TopicPartition], version: int, now_ms: int) -> "Transaction":
        """Returns the state Ongoing with `partitions` added. If no transaction is ongoing, a new one starts at
        `now_ms`. `version`: the client's transaction version (KIP-890)."""
        return self._step(
            State.ONGOING,
            now_ms,
            partitions=self.partitions.union(partitions),
            started_ms=now_ms if self.is_at_rest else self.started_ms,
            version=version,
            last_epoch=NO_EPOCH,  # a producer that uses its epoch knows it
        )

    def prepared(self, committed: bool, version: int, fresh_producer_id: int, now_ms: int) -> "Transaction":
        """Returns the state PrepareCommit or PrepareAbort. With transaction version 2 the epoch is raised; if the
        producer id has no epoch left, the client's next producer id is `fresh_producer_id`."""
        changes: dict[str, Any] = {}
        if version >= TV_2:
            changes["epoch"] = min(self.epoch + 1, EPOCH_MAX)
            # At EPOCH_MAX the producer was fenced before: `last_epoch` already holds the epoch that it knows.
            changes["last_epoch"] = self.last_epoch if self.epoch == EPOCH_MAX else self.epoch
            changes["next_producer"] = ProducerKey(fresh_producer_id, 0) if self.is_exhausted else None
        return self._step(
            State.PREPARE_COMMIT if committed else State.PREPARE_ABORT,
            now_ms,
            # A transaction that has not begun has no partitions to mark: it begins and ends now.
            started_ms=now_ms if self.is_at_rest else self.started_ms,
            version=version,
            **changes,
        )

    def fenced(self, last_epoch: int, now_ms: int) -> "Transaction":
        """Returns the state PrepareAbort, with a raised epoch that fences the producer. `last_epoch`: the epoch of
        a producer that may continue after the abort; NO_EPOCH if it may not."""
        return self._step(
            State.PREPARE_ABORT,
            now_ms,
            epoch=min(self.epoch + 1, EPOCH_MAX),
            last_epoch=last_epoch,
            version=TV_2,
            next_producer=None,
        )

    def committed_with_others(self, now_ms: int) -> "Transaction":
        """Returns the state PrepareCommit after a CommitSet, the atomic commit of a Spark batch's transactions. The
        epoch is raised, which fences the producer."""
        return self._step(
            State.PREPARE_COMMIT,
            now_ms,
            epoch=min(self.epoch + 1, EPOCH_MAX),
            last_epoch=NO_EPOCH,
            version=TV_2,
            next_producer=None,
        )

    def completed(self, now_ms: int) -> "Transaction":
        """Returns the state after markers are written to every partition."""
        producer = self.next_producer or self.producer
        return self._step(
            State.COMPLETE_COMMIT if self.is_commit else State.COMPLETE_ABORT,
            now_ms,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            partitions=frozenset(),
            next_producer=None,
        )

    def _step(self, state: State, now_ms: int, **changes: Any) -> "Transaction":
        assert state in ALLOWED[self.state], f"{self.transactional_id}: {self.state.label} to {state.label}"
        if changes.get("producer_id", self.producer_id) != self.producer_id:
            changes["previous_producer_id"] = self.producer_id
        return self._replace(state=state, updated_ms=now_ms, **changes)

    # -- records

    def to_record(self) -> StateRecord:
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(self.partitions):
            topics.setdefault(topic, []).append(number)
        value = TransactionValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer.producer_id if self.next_producer else NO_PRODUCER,
            producer_epoch=self.epoch,
            next_producer_epoch=self.next_producer.epoch if self.next_producer else NO_EPOCH,
            last_producer_epoch=self.last_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None
            if self.state is State.EMPTY
            else [PartitionsOfTopic(topic=topic, partition_ids=numbers) for topic, numbers in topics.items()],
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.started_ms,
            client_transaction_version=self.version,
        )
        key = TransactionKey(transactional_id=self.transactional_id)
        return state_record(TRANSACTION, key, value, TRANSACTION_VERSION, parsed=self)

    @classmethod
    def from_record(cls, transactional_id: str, value: bytes) -> "Transaction":
        read = read_value(TransactionValue, value)
        try:
            state = State(read.transaction_status)
        except ValueError as error:
            raise MalformedRequest(f"transaction {transactional_id!r}: {error}") from error
        return cls(
            transactional_id=transactional_id,
            producer_id=read.producer_id,
            epoch=read.producer_epoch,
            timeout_ms=read.transaction_timeout_ms,
            updated_ms=read.transaction_last_update_timestamp_ms,
            state=state,
            partitions=frozenset(
                TopicPartition(entry.topic, number)
                for entry in read.transaction_partitions or ()
                for number in entry.partition_ids
            ),
            started_ms=read.transaction_start_timestamp_ms,
            version=read.client_transaction_version,
            previous_producer_id=read.previous_producer_id,
            last_epoch=read.last_producer_epoch,
            next_producer=None
            if read.next_producer_id == NO_PRODUCER
            else ProducerKey(read.next_producer_id, max(read.next_producer_epoch, 0)),
        )


def tombstone(transactional_id: str) -> StateRecord:
    """Returns the tombstone that removes a transactional id."""
    return state_record(TRANSACTION, TransactionKey(transactional_id=transactional_id), None)
