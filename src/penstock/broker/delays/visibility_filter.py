"""What consumers do not see of a replica: delayed records, and what is held back for a while. Followers see all."""

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.broker.delays.batch_decoder import LargeBatches
from penstock.broker.delays.delayed_batches import Marks
from penstock.broker.delays.topic_delay import Holding
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

READ_BYTES_MAX: Final = 4 << 20
OPEN_BYTES_MAX: Final = 1 << 20
"""Of batches that are opened for one answer, decompressed: more would hold the event loop for too long."""
_INVERT: Final = bytes.maketrans(b"\x00\x01", b"\x01\x00")


class Seen(NamedTuple):
    """What a consumer is sent."""

    records: Buffer
    high_watermark: int
    last_stable_offset: int
    is_changed: bool
    """Whether records were left out: then what was aborted was, too."""


class VisibilityFilter:
    """Of one replica, led here or not. `machine_of`: who knows since when records are delayed."""

    def __init__(
        self,
        partition: Partition,
        machine_of: Callable[[], DelayMachine | None],
        clock: Clock,
        timer: Timer,
        large: LargeBatches | None = None,
    ) -> None:
        self._partition = partition
        self._machine_of = machine_of
        self._clock = clock
        self._timer = timer
        self.marks: Final = Marks(large)
        self._holding: Holding | None = None
        self._kept_to = 0
        self.may_delay = False
        """Whether delayed records may be taken in: it is committed that they are held back."""

    def configure(self, settings: LogSettings) -> None:
        """The topic's settings may have changed."""
        delay_ms = settings.delivery_delay_ms
        if self._holding is not None and not delay_ms:
            self._holding.close()
            self._holding = None
            self._partition.tell_readers()
        elif self._holding is not None:
            self._holding.delay_ms = delay_ms
        elif delay_ms and self._partition.is_online:
            self._holding = Holding(self._partition, delay_ms, self._clock, self._timer)

    def close(self) -> None:
        if self._holding is not None:
            self._holding.close()

    def visible_to(self, limit: int) -> int:
        """The end of the log, as consumers know it."""
        return limit if self._holding is None else self._holding.visible_to(limit)

    @property
    def keep_from(self) -> int:
        """Retention may take what is below: no message is in there that consumers are yet to see from here."""
        visible = self.visible_to(LONG_MAX)
        if not self._partition.log.settings.delayed:
            return visible
        machine, companion = self._machine_of(), self._partition.companion
        if machine is None or companion is None or machine.since == UNKNOWN:
            return 0
        if not companion.is_leader or companion.high_watermark >= companion.log.end_offset:
            self._kept_to = machine.copied_to  # which is committed, as all is that was decided
        return min(self._kept_to, visible)

    def read(self, offset: int, max_bytes: int, *, blocking: bool, force: bool, stable: bool) -> Seen:
        """As Partition.read. Raises ColdRead and OffsetOutOfRange."""
        partition = self._partition
        log = partition.log
        mark = self.visible_to(partition.high_watermark)
        last_stable = min(mark, partition.last_stable_offset)
        limit = last_stable if stable else mark
        data = log.read(offset, min(max_bytes, READ_BYTES_MAX), limit, blocking=blocking, force=force)
        if not data or not log.settings.delayed:
            return Seen(data, mark, last_stable, False)
        machine = self._machine_of()
        if machine is None or machine.since == UNKNOWN:
            return Seen(b"", mark, last_stable, False)  # soon it is known; until then nothing may be shown
        hidden = self._hide(data, offset, machine.since, log, stable)
        return Seen(data if hidden is None else hidden, mark, last_stable, hidden is not None)

    def _hide(self, data: Buffer, offset: int, since: int, log: Log, stable: bool) -> Buffer | None:
        """What is left of batches without their delayed records; None if they have none. Raises ColdRead."""
        view = memoryview(data)
        self.marks.check(log)
        opened: dict[int, Columns] = {}
        end, opened_bytes, is_cut = offset, 0, False
        for at, header in batches(data):
            if opened_bytes >= OPEN_BYTES_MAX:
                is_cut = True
                break
            if header.next_offset > since:
                batch = view[at : at + header.size_bytes]
                try:
                    found = self.marks.of_batch(batch, header, log)
                    if found is not False:
                        opened[at] = found if isinstance(found, Columns) else self.marks.decode(batch, header, log)
                        opened_bytes += len(opened[at].body)
                except ColdRead:
                    if end == offset:
                        raise
                    is_cut = True  # a thread has to decode it: what comes before it can be sent meanwhile
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
