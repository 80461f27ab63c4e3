"""Options of a subscription loop: tags, limit, idle timeout, messages in flight."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.api.core.settings import check_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """Which messages a subscription loop delivers, how many, and when the loop ends."""

    tags: frozenset[str] | None = None
    limit: int | None = None
    idle_timeout_s: float | None = None
    max_in_flight: int = 1

    def __post_init__(self) -> None:
        for name in ("limit", "idle_timeout_s", "max_in_flight"):
            check_positive(name, getattr(self, name))

    @property
    def is_sequential(self) -> bool:
        """Whether requesting the next message finishes the previous message."""
        return self.max_in_flight == 1


def tags_of(tags: str | Iterable[str] | None) -> frozenset[str] | None:
    return None if tags is None else frozenset([tags] if isinstance(tags, str) else tags)
