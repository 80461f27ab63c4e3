"""Replays a log into a state machine, and skips or refuses records that the state machine cannot read.

Internal topics: an unreadable record is skipped, logged and counted. A single such record, written by a later version
or by a client (brokers now refuse that), must not make all groups or transactions of its partition unavailable.
Companion logs (queue state or delayed messages): replay stops. Clients cannot write there, and a message whose record
was skipped would count as acknowledged or delivered, and would be lost silently. A batch with a wrong checksum stops
both: the log itself is damaged, and another replica may have the right bytes.
"""

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from penstock.foundation.decision import NO_PRODUCER, StateRecord
from penstock.foundation.errors import CorruptMessage, InvalidRecord, PenstockError, StorageError
from penstock.foundation.ids import TopicPartition
from penstock.records.batch import BatchHeader, batches, check_batch
from penstock.records.build import read_marker
from penstock.records.columns import Columns, decode_columns
from penstock.records.layout import Buffer

logger = logging.getLogger(__name__)

NOOP_KEY: Final = (30_002).to_bytes(2, "big")
"""Key of a no-op record, whose commit proves that this broker still leads the partition. It has the format of the
record keys of Kafka's coordinators, which begin with a two-byte type; Kafka's tools skip records of this type."""
DECOMPRESSED_BYTES_MAX: Final = 4 << 20
"""Maximum decompressed size of a batch, in bytes. Brokers write less than 1 MiB; clients may have written more."""
RECORDS_AT_ONCE: Final = 1000
"""Number of records applied per time slice of the event loop."""
LINES_MAX: Final = 10
"""Maximum number of skipped records per log that are each logged in a line of their own."""


class DamagedBatch(StorageError):
    """The checksum of a batch does not match its bytes."""


class ReplayTarget(Protocol):
    """The part of a state machine's interface that replay uses."""

    def apply(self, record: StateRecord, producer_id: int) -> None: ...

    def end_transaction(self, producer_id: int, committed: bool) -> None: ...


class Replay:
    """Applies the batches of one log to one state machine."""

    def __init__(self, machine: ReplayTarget, name: TopicPartition, on_skipped: Callable[[int], None] | None) -> None:
        """`on_skipped`: called with the number of skipped records; if None, an unreadable record stops the replay."""
        self._machine = machine
        self._apply_batch: Callable[[Any, BatchHeader], None] | None = getattr(machine, "apply_batch", None)
        """Function that applies a whole batch at once, if the state machine is a BatchedMachine; else None."""
        self._name = name
        self._on_skipped = on_skipped
        self.skipped_count = 0
        self._columns: Columns | None = None
        self._producer_id = NO_PRODUCER
        self._row = 0
        """Index of the next record to apply in the current batch."""

    def batches(self, data: Buffer, offset: int) -> list[tuple[int, BatchHeader]]:
        """Returns position and header of each whole batch in `data`. Raises DamagedBatch, with `offset` in its
        message."""
        try:
            return list(batches(data))
        except CorruptMessage as error:
            raise DamagedBatch(f"{self._name} is damaged after offset {offset}: {error}") from error

    @property
    def is_busy(self) -> bool:
        """Whether the last batch has records that are not applied yet; see `resume`."""
        return self._columns is not None

    def apply(self, batch: memoryview, header: BatchHeader) -> int:
        """Applies a batch, or its first RECORDS_AT_ONCE records (see `resume`). Returns the count of applied
        records. Raises DamagedBatch, and the errors of the state machine if unreadable records are not skipped."""
        try:
            check_batch(batch, 0, header)
        except CorruptMessage as error:
            raise DamagedBatch(f"{self._name} is damaged at offset {header.base_offset}: {error}") from error
        if header.is_control:
            self._end_transaction(batch, header)
        elif self._apply_batch is not None:
            self._apply_batch(batch, header)
        else:
            self._open(batch, header)
            return self.resume()
        return 1

    def _end_transaction(self, batch: memoryview, header: BatchHeader) -> None:
        try:
            marker = read_marker(batch)
        except PenstockError as error:
            self._skip(header.base_offset, header.count, error)
            return
        if marker is not None and header.producer_id != NO_PRODUCER:
            self._machine.end_transaction(header.producer_id, marker.committed)

    def _open(self, batch: memoryview, header: BatchHeader) -> None:
        # A copy if it takes several time slices: the data may be mapped from the page cache.
        data = bytes(batch) if header.count > RECORDS_AT_ONCE else batch
        try:
            self._columns = decode_columns(data, DECOMPRESSED_BYTES_MAX)
        except PenstockError as error:
            self._skip(header.base_offset, header.count, error)
            return
        self._producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
        self._row = 0

    def resume(self) -> int:
        """Applies up to RECORDS_AT_ONCE more records of the current batch. Returns their number; 0: none are left."""
        columns, start = self._columns, self._row
        if columns is None:
            return 0
        self._row = end = min(start + RECORDS_AT_ONCE, columns.count)
        if end == columns.count:
            self._columns = None
        for row in range(start, end):
            key = columns.key(row)
            try:
                if key is None:
                    raise InvalidRecord("a state record has no key")
                if key != NOOP_KEY:
                    self._machine.apply(StateRecord(key=key, value=columns.value(row)), self._producer_id)
            except PenstockError as error:
                self._skip(columns.offsets[row], 1, error)
        return end - start

    def _skip(self, offset: int, count: int, error: PenstockError) -> None:
        if self._on_skipped is None:
            raise error
        self.skipped_count += count
        self._on_skipped(count)
        if self.skipped_count <= LINES_MAX:
            logger.warning(
                "state_record_skipped partition=%s offset=%d records=%d reason=%r",
                self._name,
                offset,
                count,
                str(error),
            )
