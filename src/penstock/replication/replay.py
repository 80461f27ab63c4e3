"""Replays a log into a state machine, and decides what becomes of records that the machine cannot read.

Internal topics: such a record is skipped, logged and counted. One record that a client wrote before brokers refused
it, or that a later version wrote, must not take all groups or transactions of its partition away. Companion logs:
replay stops. Clients cannot write there, and an offset without a readable record would count as finished: messages
would be lost in silence. A batch whose checksum is wrong stops both: the log itself is damaged, and another replica
may have the right bytes.
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

NOTE_KEY: Final = (30_002).to_bytes(2, "big")
"""The key of what says nothing. Kafka's keys begin with a number too; its tools pass over those they do not know."""
DECOMPRESSED_BYTES_MAX: Final = 4 << 20
"""Of one batch. Brokers write batches of less than 1 MiB, uncompressed; a client may have written others."""
RECORDS_AT_ONCE: Final = 1000
"""Between so many the event loop does other things."""
LINES_MAX: Final = 10
"""Skipped records of one log that are logged one by one."""


class DamagedBatch(StorageError):
    """The checksum of a batch does not match its bytes."""


class Replayed(Protocol):
    """What records are replayed into: a state machine, as far as that goes."""

    def apply(self, record: StateRecord, producer_id: int) -> None: ...

    def end_transaction(self, producer_id: int, committed: bool) -> None: ...


class Replay:
    """Applies the batches of one log to one machine."""

    def __init__(self, machine: Replayed, name: TopicPartition, on_skipped: Callable[[int], None] | None) -> None:
        """`on_skipped` is told how many records were skipped; None: a record that cannot be read stops the replay."""
        self._machine = machine
        self._apply_batch: Callable[[Any, BatchHeader], None] | None = getattr(machine, "apply_batch", None)
        """Of a BatchedMachine."""
        self._name = name
        self._on_skipped = on_skipped
        self.skipped_count = 0
        self._columns: Columns | None = None
        self._producer_id = NO_PRODUCER
        self._row = 0
        """The batch that is being applied, and the record that is next."""

    def batches(self, data: Buffer, offset: int) -> list[tuple[int, BatchHeader]]:
        """Returns where each whole batch of `data` starts, and its header. Raises DamagedBatch."""
        try:
            return list(batches(data))
        except CorruptMessage as error:
            raise DamagedBatch(f"{self._name} is damaged after offset {offset}: {error}") from error

    @property
    def is_busy(self) -> bool:
        """Whether some records of the last batch are not applied yet: see `go_on`."""
        return self._columns is not None

    def apply(self, batch: memoryview, header: BatchHeader) -> int:
        """Applies a batch, or its first RECORDS_AT_ONCE records; how many. `go_on` applies the others.

        Raises DamagedBatch, and what the machine raises if unreadable records are not skipped.
        """
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
            return self.go_on()
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
        # A copy, if it takes several turns: what is read from a log may be the page cache itself.
        data = bytes(batch) if header.count > RECORDS_AT_ONCE else batch
        try:
            self._columns = decode_columns(data, DECOMPRESSED_BYTES_MAX)
        except PenstockError as error:
            self._skip(header.base_offset, header.count, error)
            return
        self._producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
        self._row = 0

    def go_on(self) -> int:
        """Applies more records of the batch that is being applied; how many."""
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
                    raise InvalidRecord("a record of state needs a key")
                if key != NOTE_KEY:
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
