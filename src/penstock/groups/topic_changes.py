"""Removes offsets of deleted topics and resolves all subscriptions when topics have changed. Pure.

Both are done in time slices: a group may have offsets in 10,000 partitions, and there may be thousands of groups.
"""

from itertools import islice
from typing import Final, NamedTuple

from penstock.foundation.decision import StateRecord
from penstock.groups.group import RETRY_MS, CoordinatorView
from penstock.groups.modern.group import ModernGroup
from penstock.groups.offsets.committed import offset_tombstone

TOMBSTONES_AT_ONCE: Final = 500
GROUPS_AT_ONCE: Final = 10
PAUSE_MS: Final = 5
"""Pause, in milliseconds, between time slices, in which the records of the last slice can be persisted."""


class SliceResult(NamedTuple):
    """Result of a time slice: records to persist, and the time of the next slice (None if all work is done)."""

    records: tuple[StateRecord, ...]
    next_ms: int | None


class TopicChanges:
    """Updates groups and offsets after topics have changed. Repeats the update until it finds nothing to write, since
    a write may fail."""

    def __init__(self, coordinator: CoordinatorView) -> None:
        self._coordinator = coordinator
        self._deleted: set[str] = set()
        """Names of topics whose offsets are being removed."""
        self._unresolved: dict[str, None] = {}
        """Ids of groups whose subscriptions are not resolved with the newest metadata image yet."""
        self._resolved: dict[str, None] = {}
        """Ids of groups whose subscriptions are resolved, but whose records may not have been persisted."""

    def on_new_image(self, deleted: frozenset[str]) -> None:
        """Called with each new metadata image; `deleted`: names of topics that no longer exist. `run_slice` then
        removes the offsets of these topics, and updates all groups except classic ones, whose members watch for
        topic changes."""
        self._deleted |= deleted
        self._resolved = {}
        self._unresolved = dict.fromkeys(
            group_id for group_id, group in self._coordinator.groups.items() if isinstance(group, ModernGroup)
        )

    def run_slice(self, now_ms: int) -> SliceResult:
        """Runs the next time slice; returns the records to persist and the time of the next slice."""
        stale = self._stale_offsets()
        records = stale[:TOMBSTONES_AT_ONCE]
        for group_id in list(islice(self._unresolved, GROUPS_AT_ONCE)):
            del self._unresolved[group_id]
            group = self._coordinator.groups.get(group_id)
            changes = group.topics_changed(now_ms).persist if isinstance(group, ModernGroup) else ()
            if changes:
                records += changes
                self._resolved[group_id] = None
        if self._unresolved or len(stale) > TOMBSTONES_AT_ONCE:
            return SliceResult(tuple(records), now_ms + PAUSE_MS)
        if records or self._resolved:
            self._unresolved, self._resolved = self._resolved, {}
            return SliceResult(tuple(records), now_ms + RETRY_MS)
        self._deleted.clear()
        return SliceResult((), None)

    def _stale_offsets(self) -> list[StateRecord]:
        """Returns tombstones of offsets of deleted topics: at most TOMBSTONES_AT_ONCE, and one more if further
        offsets have to be removed in the next time slice."""
        records: list[StateRecord] = []
        for topic in sorted(self._deleted):
            limit = TOMBSTONES_AT_ONCE + 1 - len(records)
            records += (offset_tombstone(group_id, topic, number) for group_id, number in self._stale(topic)[:limit])
        return records

    def _stale(self, topic: str) -> list[tuple[str, int]]:
        known = self._coordinator.image.shown_by_name.get(topic)
        topic_id = known.topic_id if known else None
        offsets = list(self._coordinator.offsets.of_topic(topic))
        current = {(group_id, number) for group_id, number, found in offsets if found.topic_id == topic_id}
        tps = ((group_id, number) for group_id, number, _ in offsets if (group_id, number) not in current)
        return list(dict.fromkeys(tps))
