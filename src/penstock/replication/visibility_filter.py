"""What consumers do not see of a replica, as a port."""

from typing import Any, Protocol

from penstock.log.settings import LogSettings


class VisibilityFilter(Protocol):
    """What consumers do not see of a replica: see broker/delays/visibility_filter.py."""

    may_delay: bool

    @property
    def keep_from(self) -> int:
        """Retention may take what is below."""

    def visible_to(self, limit: int) -> int:
        """Where the log ends for consumers, if it ends at `limit` for all others."""

    def read(self, offset: int, max_bytes: int, *, blocking: bool, force: bool, stable: bool) -> Any:
        """What consumers see."""

    def configure(self, settings: LogSettings) -> None: ...

    def close(self) -> None: ...
