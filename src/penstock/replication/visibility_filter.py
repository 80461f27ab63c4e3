"""Port of the visibility filter that hides delayed records of a replica from consumers."""

from typing import Any, Protocol

from penstock.log.settings import LogSettings


class VisibilityFilter(Protocol):
    """Hides delayed records from consumers; implemented in broker/delays/visibility_filter.py."""

    may_delay: bool

    @property
    def keep_from(self) -> int:
        """Retention may delete records below this offset."""

    def visible_to(self, limit: int) -> int:
        """Returns the end offset for consumers, if it is `limit` for all others."""

    def read(self, offset: int, max_bytes: int, *, blocking: bool, force: bool, stable: bool) -> Any:
        """Reads the records that consumers may see."""

    def configure(self, settings: LogSettings) -> None: ...

    def close(self) -> None: ...
