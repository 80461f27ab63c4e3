"""Which batches of a log have delayed records: known of the newest ones, found out by opening for all others."""

from array import array
from bisect import bisect_left
from typing import Final

from penstock.broker.delays.batch_decoder import LargeBatches
from penstock.log.epochs import NO_EPOCH
from penstock.log.log import Log
from penstock.records.batch import BatchHeader
from penstock.records.columns import Columns
from penstock.records.delayed import delayed_mask, is_delivery
from penstock.records.layout import Buffer

MARKS_MAX: Final = 1 << 17
"""Then the older half is forgotten: whoever reads that again has batches opened again."""


class Marks:
    """Of one replica. What is known goes from one offset to another; when the log was cut, all is forgotten."""

    def __init__(self, large: LargeBatches | None = None) -> None:
        self._large = large or LargeBatches()
        self._marked = array("q")
        """Base offsets of batches with delayed records."""
        self._from = self._to = -1
        self._epoch = NO_EPOCH

    def check(self, log: Log) -> None:
        """Call before a series of questions about a log."""
        if self._to > log.end_offset or (self._to > 0 and log.epochs.at(self._to - 1) != self._epoch):
            self._from = self._to = -1
            del self._marked[:]

    def of_batch(self, batch: Buffer, header: BatchHeader, log: Log) -> "Columns | bool":
        """Whether a batch has delayed records; its columns, where they had to be decoded to know it.

        Raises ColdRead if a thread has to decode it first.
        """
        if header.is_control or not header.count or is_delivery(header):
            self._extend(header, log, is_marked=False)
            return False
        if self._from <= header.base_offset and header.next_offset <= self._to:
            at = bisect_left(self._marked, header.base_offset)
            return at < len(self._marked) and self._marked[at] == header.base_offset
        columns = self.decode(batch, header, log)
        is_marked = 1 in delayed_mask(columns)
        self._extend(header, log, is_marked=is_marked)
        return columns if is_marked else False

    def decode(self, batch: Buffer, header: BatchHeader, log: Log) -> Columns:
        """Returns the columns of a batch. Raises ColdRead if a thread has to decode it first."""
        return self._large.decode(batch, header, log)

    def _extend(self, header: BatchHeader, log: Log, *, is_marked: bool) -> None:
        if self._to < 0:
            self._from = self._to = header.base_offset
        if header.base_offset != self._to:
            return
        self._to = header.next_offset
        self._epoch = log.epochs.at(self._to - 1)
        if is_marked:
            self._marked.append(header.base_offset)
            if len(self._marked) > MARKS_MAX:
                del self._marked[: MARKS_MAX // 2]
                self._from = self._marked[0]
