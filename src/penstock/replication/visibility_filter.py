"""Interface of the visibility filter that hides delayed records of a replica from consumers."""

from typing import NamedTuple, Protocol

from penstock.log.settings import LogSettings
from penstock.records.layout import Buffer


class VisibleRecords(NamedTuple):
    """The records that are sent to a consumer, and the high watermark and last stable offset that the consumer
    sees."""

    records: Buffer
    high_watermark: int
    last_stable_offset: int
    is_changed: bool = False
    """Whether `records` were filtered: hidden records and, for read_committed, records of aborted transactions are
    gone."""


class VisibilityFilter(Protocol):
    """Hides delayed records from consumers; implemented in broker/delays/visibility_filter.py."""

    may_delay: bool

    @property
    def keep_from(self) -> int:
        """The lowest offset whose record must be kept: retention may only delete records below it."""

    def visible_to(self, limit: int) -> int:
        """Returns the end offset that consumers see; `limit` is the end offset that they would see without delays."""

    def read(self, offset: int, max_bytes: int, *, blocking: bool, force: bool, stable: bool) -> VisibleRecords:
        """Reads visible records from `offset` on. `force`: returns the first batch even if it exceeds `max_bytes`.
        `stable`: ends at the last stable offset, not the high watermark. May raise ColdRead unless `blocking`."""

    def configure(self, settings: LogSettings) -> None: ...

    def close(self) -> None: ...
