"""Hides records with a delay header, and records younger than `delivery.delay.ms`, from consumers of a replica."""

from collections.abc import Callable
from typing import Final

from penstock.broker.delays.batch_decoder import BatchDecoder
from penstock.broker.delays.delayed_batches import DelayedBatches
from penstock.broker.delays.topic_delay import TopicDelay
from penstock.delays.machine import UNKNOWN, DelayMachine
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.settings import LONG_MAX
from penstock.log.disk import ColdRead
from penstock.log.log import Log
from penstock.log.settings import LogSettings
from penstock.records.batch import BatchHeader, batches
from penstock.records.columns import Columns
from penstock.records.delayed import delayed_mask
from penstock.records.layout import Buffer
from penstock.records.selection import Selection
from penstock.replication.partition import Partition
from penstock.replication.visibility_filter import VisibleRecords

READ_BYTES_MAX: Final = 4 << 20
OPEN_BYTES_MAX: Final = 1 << 20
"""Maximum decompressed size, in bytes, of batches decoded for one response: more would block the event loop."""
_INVERT: Final = bytes.maketrans(b"\x00\x01", b"\x01\x00")


class VisibilityFilter:
    """Hides a replica's delayed records from consumers. `machine_of` returns the state machine of the replica's
    delayed messages, or None if it is not loaded."""

    def __init__(
        self,
        partition: Partition,
        machine_of: Callable[[], DelayMachine | None],
        clock: Clock,
        timer: Timer,
        decoder: BatchDecoder | None = None,
    ) -> None:
        self._partition = partition
        self._machine_of = machine_of
        self._clock = clock
        self._timer = timer
        self.delayed_batches: Final = DelayedBatches(decoder)
        self._topic_delay: TopicDelay | None = None
        self._copied_to = 0
        self.may_delay = False
        """Whether delayed records may be accepted: true once the offset at which delays begin is committed."""

    def configure(self, settings: LogSettings) -> None:
        """Applies the topic's current settings."""
        delay_ms = settings.delivery_delay_ms
        if self._topic_delay is not None and not delay_ms:
            self._topic_delay.close()
            self._topic_delay = None
            self._partition.wake_consumers()
        elif self._topic_delay is not None:
            self._topic_delay.delay_ms = delay_ms
        elif delay_ms and self._partition.is_online:
            self._topic_delay = TopicDelay(self._partition, delay_ms, self._clock, self._timer)

    def close(self) -> None:
        if self._topic_delay is not None:
            self._topic_delay.close()

    def visible_to(self, limit: int) -> int:
        """Returns `limit` (such as the high watermark), lowered to what the topic delay lets consumers see."""
        return limit if self._topic_delay is None else self._topic_delay.visible_to(limit)

    @property
    def keep_from(self) -> int:
        """The offset below which retention may delete messages: all of them are visible to consumers, or copied to
        the companion log."""
        visible = self.visible_to(LONG_MAX)
        if not self._partition.log.settings.delayed:
            return visible
        machine, companion = self._machine_of(), self._partition.companion
        if machine is None or companion is None or machine.since == UNKNOWN:
            return 0
        if not companion.is_leader or companion.high_watermark >= companion.log.end_offset:
            self._copied_to = machine.copied_to  # committed, as all decisions are
        return min(self._copied_to, visible)

    def read(self, offset: int, max_bytes: int, *, blocking: bool, force: bool, stable: bool) -> VisibleRecords:
        """Reads records as Partition.read does, without hidden records. Raises OffsetOutOfRange, and ColdRead if a
        thread must first read or decode data."""
        partition = self._partition
        log = partition.log
        mark = self.visible_to(partition.high_watermark)
        last_stable = min(mark, partition.last_stable_offset)
        limit = last_stable if stable else mark
        data = log.read(offset, min(max_bytes, READ_BYTES_MAX), limit, blocking=blocking, force=force)
        if not data or not log.settings.delayed:
            return VisibleRecords(data, mark, last_stable, False)
        machine = self._machine_of()
        if machine is None or machine.since == UNKNOWN:
            return VisibleRecords(b"", mark, last_stable, False)  # not loaded yet; until then nothing may be shown
        filtered = self._remove_delayed(data, offset, machine.since, log, stable)
        return VisibleRecords(data if filtered is None else filtered, mark, last_stable, filtered is not None)

    def _remove_delayed(self, data: Buffer, offset: int, since: int, log: Log, stable: bool) -> Buffer | None:
        """Returns `data` without its delayed records, which are all at or after `since`; None if it has none.
        `offset`: the fetch offset. `stable`: also removes aborted records (read_committed). Raises ColdRead if a
        thread must decode the first batch."""
        view = memoryview(data)
        self.delayed_batches.check(log)
        opened: dict[int, Columns] = {}
        end, opened_bytes, is_cut = offset, 0, False
        for at, header in batches(data):
            if opened_bytes >= OPEN_BYTES_MAX:
                is_cut = True
                break
            if header.next_offset > since:
                batch = view[at : at + header.size_bytes]
                try:
                    found = self.delayed_batches.of_batch(batch, header, log)
                    if found is not False:
                        opened[at] = (
                            found if isinstance(found, Columns) else self.delayed_batches.decode(batch, header, log)
                        )
                        opened_bytes += len(opened[at].body)
                except ColdRead:
                    if end == offset:
                        raise
                    is_cut = True  # a thread has to decode it: send the batches before it meanwhile
                    break
            end = header.next_offset
        if not opened and not is_cut:
            return None
        selection = Selection(offset, log.aborted_between(offset, end) if stable else ())
        for at, header in batches(data):
            if header.base_offset >= end:
                break
            if selection.is_visible(header):
                batch = view[at : at + header.size_bytes]
                if at in opened:
                    _choose(selection, batch, header, opened[at])
                else:
                    selection.keep(batch, header)
        return selection.answer().records


def _choose(selection: Selection, batch: Buffer, header: BatchHeader, columns: Columns) -> None:
    selection.choose(batch, header, columns, delayed_mask(columns).translate(_INVERT))
