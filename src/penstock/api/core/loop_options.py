"""Which messages a loop wants."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.api.core.settings import check_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """Which messages a loop wants, how many, and when it is to end."""

    tags: frozenset[str] | None = None
    limit: int | None = None
    idle_timeout_s: float | None = None
    max_in_flight: int = 1

    def __post_init__(self) -> None:
        for name in ("limit", "idle_timeout_s", "max_in_flight"):
            check_positive(name, getattr(self, name))

    @property
    def is_in_order(self) -> bool:
        """Whether asking for the next message says that the last one is finished."""
        return self.max_in_flight == 1


def tags_of(tags: str | Iterable[str] | None) -> frozenset[str] | None:
    return None if tags is None else frozenset([tags] if isinstance(tags, str) else tags)
