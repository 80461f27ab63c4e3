"""What the simulation of transactions knows of them: a tiny log with markers, and acknowledged outcomes."""

from collections import Counter
from dataclasses import dataclass, field

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.ids import TopicPartition
from penstock.transactions.commands import WriteMarkers

PARTITIONS = 4
OFFSETS = PARTITIONS - 1
"""The last partition is that of a group's offsets."""


def partition_of(number: int) -> TopicPartition:
    return TopicPartition("__consumer_offsets" if number == OFFSETS else "t", number)


@dataclass(eq=False, slots=True)
class Txn:
    """A transaction as its producer knows it, and where readers have seen what became of it."""

    name: str
    wants_commit: bool = False
    outcome: bool | None = None
    acked: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Partition, producer id, epoch and sequence of each record that was acknowledged."""
    share: tuple[str, int, int] | None = None
    """What part of a query's work it is, if a task of Spark's has written it: query, batch and task."""
    seen_in: set[int] = field(default_factory=set)
    hidden_in: set[int] = field(default_factory=set)

    def check(self) -> None:
        assert not (self.seen_in and self.hidden_in), f"NoAbortedRead: {self} is in a part of its partitions"
        assert self.wants_commit or not self.seen_in, f"NoAbortedRead: {self} was not committed"
        assert self.outcome is not False or not self.seen_in, f"NoAbortedRead: {self} was said to be aborted"
        assert self.outcome is not True or not self.hidden_in, f"CommitNeverUndone: {self} was said to be committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A record on its way to a partition."""

    partition: int
    name: str
    producer: ProducerKey
    sequence: int
    txn: Txn
    newer: bool


@dataclass(slots=True)
class Entry:
    """A record, or a marker if it has an outcome."""

    producer_id: int
    epoch: int
    sequence: int
    txn: Txn | None = None
    committed: bool | None = None


@dataclass(slots=True)
class Writer:
    """What a partition remembers of a producer id."""

    epoch: int
    sequence: int = -1
    coordinator_epoch: int = -1


class Log:
    """A partition: records, markers, and open transactions."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.open: dict[int, tuple[int, Txn]] = {}
        self.writers: dict[int, Writer] = {}
        self.markers: Counter[int] = Counter()
        self.is_changed = False
        """Whether something ended here since that was last asked."""

    @property
    def last_stable_offset(self) -> int:
        return min((first for first, _ in self.open.values()), default=len(self.entries))

    def check(self, batch: Batch) -> ErrorCode | None:
        """Why a batch is not appended: it was before (NONE), or it must not be. None: it may be."""
        known = self.writers.get(batch.producer.producer_id)
        if known is None or batch.producer.epoch > known.epoch:
            return None if batch.sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if batch.producer.epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if batch.sequence <= known.sequence:
            return ErrorCode.NONE
        return None if batch.sequence == known.sequence + 1 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def has_open(self, producer: ProducerKey) -> bool:
        known = self.writers.get(producer.producer_id)
        return producer.producer_id in self.open and known is not None and known.epoch == producer.epoch

    def append(self, batch: Batch) -> None:
        producer_id, epoch = batch.producer
        _, txn = self.open.setdefault(producer_id, (len(self.entries), batch.txn))
        assert txn is batch.txn, f"FencedNeverJoins: {batch.txn} joins {txn}"
        known = self.writers.setdefault(producer_id, Writer(epoch))
        known.epoch, known.sequence = epoch, batch.sequence
        self.entries.append(Entry(producer_id, epoch, batch.sequence, batch.txn))

    def write_marker(self, order: WriteMarkers) -> None:
        producer_id, epoch = order.producer
        known = self.writers.setdefault(producer_id, Writer(-1))
        if order.coordinator_epoch < known.coordinator_epoch or epoch < known.epoch:
            return
        if order.transaction_version >= 2 and epoch == known.epoch:
            return  # it is of the transaction before (KIP-1228)
        if epoch > known.epoch:
            known.epoch, known.sequence = epoch, -1
        known.coordinator_epoch = order.coordinator_epoch
        self.open.pop(producer_id, None)
        self.entries.append(Entry(producer_id, epoch, -1, committed=order.committed))
        self.markers[producer_id] += 1
        self.is_changed = True

    def read_committed(self) -> tuple[set[Txn], set[Txn]]:
        """As a consumer reads: the transactions that it sees, and the aborted ones of the response."""
        seen: set[Txn] = set()
        hidden: set[Txn] = set()
        pending: dict[int, Txn] = {}
        end = self.last_stable_offset
        for offset, entry in enumerate(self.entries):
            if entry.txn is not None:
                if offset < end:
                    pending[entry.producer_id] = entry.txn
            elif entry.producer_id in pending:
                (seen if entry.committed else hidden).add(pending.pop(entry.producer_id))
        assert not pending, "NoAbortedRead: the last stable offset is past an open transaction"
        return seen, hidden
