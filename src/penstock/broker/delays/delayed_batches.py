"""Remembers which recent batches of a log contain delayed records, so that reads need not decode the others."""

from array import array
from bisect import bisect_left
from typing import Final

from penstock.broker.delays.batch_decoder import BatchDecoder
from penstock.log.epochs import NO_EPOCH
from penstock.log.log import Log
from penstock.records.batch import BatchHeader
from penstock.records.columns import Columns
from penstock.records.delayed import delayed_mask, is_delivery
from penstock.records.layout import Buffer

REMEMBERED_MAX: Final = 1 << 17
"""Maximum number of batches to remember; above it, the older half is forgotten and decoded again when read."""


class DelayedBatches:
    """Remembers which batches in a range of a replica's log have delayed records. Cleared if the log is truncated."""

    def __init__(self, decoder: BatchDecoder | None = None) -> None:
        self._decoder = decoder or BatchDecoder()
        self._base_offsets = array("q")
        """Base offsets of batches with delayed records."""
        self._from = self._to = -1
        self._epoch = NO_EPOCH

    def check(self, log: Log) -> None:
        """Forgets which batches have delayed records if the log was truncated. Call before a series of `of_batch`
        calls."""
        if self._to > log.end_offset or (self._to > 0 and log.epochs.at(self._to - 1) != self._epoch):
            self._from = self._to = -1
            del self._base_offsets[:]

    def of_batch(self, batch: Buffer, header: BatchHeader, log: Log) -> "Columns | bool":
        """Returns False if a batch has no delayed records; else True, or the batch's columns if they were decoded.

        Raises ColdRead if a thread must decode the batch first.
        """
        if header.is_control or not header.count or is_delivery(header):
            self._extend(header, log, is_delayed=False)
            return False
        if self._from <= header.base_offset and header.next_offset <= self._to:
            at = bisect_left(self._base_offsets, header.base_offset)
            return at < len(self._base_offsets) and self._base_offsets[at] == header.base_offset
        columns = self.decode(batch, header, log)
        is_delayed = 1 in delayed_mask(columns)
        self._extend(header, log, is_delayed=is_delayed)
        return columns if is_delayed else False

    def decode(self, batch: Buffer, header: BatchHeader, log: Log) -> Columns:
        """Returns the columns of a batch. Raises ColdRead if a thread must decode the batch first."""
        return self._decoder.decode(batch, header, log)

    def _extend(self, header: BatchHeader, log: Log, *, is_delayed: bool) -> None:
        if self._to < 0:
            self._from = self._to = header.base_offset
        if header.base_offset != self._to:
            return
        self._to = header.next_offset
        self._epoch = log.epochs.at(self._to - 1)
        if is_delayed:
            self._base_offsets.append(header.base_offset)
            if len(self._base_offsets) > REMEMBERED_MAX:
                del self._base_offsets[: REMEMBERED_MAX // 2]
                self._from = self._base_offsets[0]
