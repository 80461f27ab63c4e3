"""Queues deleted or purged within the last 60 seconds, which SQS refuses to create or purge again so soon.

One key of the store holds all of these queues, for all brokers. The key is not in the metadata image: it is read when
needed, if AWS's limits are enabled.
"""

from typing import Any, Final

from penstock.cluster import keys
from penstock.cluster.metadata import Metadata
from penstock.foundation.clock import Clock

COOLDOWN_MS: Final = 60_000
ENTRIES_MAX: Final = 1000
"""Maximum number of entries, for deleted and purged queues together; beyond it the oldest entries are dropped."""
DELETED: Final = "deleted"
PURGED: Final = "purged"


class QueueCooldowns:
    """When queues were deleted or purged, by the clock of the broker that did so."""

    def __init__(self, metadata: Metadata, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock

    async def is_over(self, kind: str, name: str) -> bool:
        """Whether no deletion (`kind` DELETED) or purge (PURGED) of a queue was recorded in the last minute."""
        known = await self._metadata.stored(keys.QUEUE_COOLDOWNS)
        return f"{kind}/{name}" not in _recent(known, self._clock.now_ms())

    async def begin(self, kind: str, name: str) -> None:
        """Records that a queue was deleted (`kind` DELETED) or purged (PURGED) now."""
        now_ms = self._clock.now_ms()

        def change(known: Any) -> dict[str, int]:
            entries = {**_recent(known, now_ms), f"{kind}/{name}": now_ms}
            newest = sorted(entries, key=lambda entry: entries[entry])[-ENTRIES_MAX:]
            return {entry: entries[entry] for entry in newest}

        await self._metadata.edit(keys.QUEUE_COOLDOWNS, change)


def _recent(known: Any, now_ms: int) -> dict[str, int]:
    """Returns the entries whose time is less than a minute before `now_ms`, or after it: clocks of brokers differ."""
    return {entry: at_ms for entry, at_ms in (known or {}).items() if abs(now_ms - at_ms) < COOLDOWN_MS}
