"""Offsets that nobody has needed for too long, and groups of which nothing is left."""

from typing import Final

from penstock.foundation.decision import StateRecord
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.group import Group, Holder
from penstock.groups.offsets.committed import NO_EXPIRY, Committed, offset_tombstone
from penstock.groups.share.group import ShareGroup

SWEEP_OFFSETS: Final = 5000
"""Looked at in one go, about; then the broker does other things."""

EXPIRED_AT_ONCE: Final = 500
"""Offsets of one group; the rest of them go in the next piece."""


class Sweep:
    """One look at all groups that there were when it began, a piece at a time."""

    def __init__(self, held: Holder) -> None:
        self._held = held
        self._left = list(held.groups)
        self._counts: dict[str, int] = {}
        """How many offsets groups had that were not finished in one go."""

    @property
    def is_over(self) -> bool:
        return not self._left

    def go_on(self, now_ms: int) -> tuple[StateRecord, ...]:
        """The tombstones of the next piece. What cannot be persisted is found again by the next sweep."""
        records: list[StateRecord] = []
        looked_at = 0
        while self._left and looked_at < SWEEP_OFFSETS:
            group_id = self._left.pop()
            group = self._held.groups.get(group_id)
            if group is not None:
                count = sum(map(len, self._held.offsets.of_group(group_id).values()))
                looked_at += 1 + count
                records += self._cut(group_id, count, _expired(self._held, group_id, group, now_ms))
        return tuple(records)

    def _cut(self, group_id: str, count: int, expired: list[StateRecord]) -> list[StateRecord]:
        """Limits what is written at once; the group is looked at again, unless nothing came of that the last time."""
        if len(expired) <= EXPIRED_AT_ONCE:
            return expired
        if self._counts.get(group_id) != count:
            self._counts[group_id] = count
            self._left.append(group_id)
        return expired[:EXPIRED_AT_ONCE]


def _expired(held: Holder, group_id: str, group: Group, now_ms: int) -> list[StateRecord]:
    if isinstance(group, ShareGroup):
        return []  # it has no offsets that could be too old, and stays until it is deleted
    records = []
    keeps_some = held.offsets.has_pending(group_id)
    for topic, table in held.offsets.of_group(group_id).items():
        is_read = group.subscribes_to(topic)
        for number, committed in table.items():
            is_pending = held.offsets.is_pending(group_id, topic, number)
            if is_read or is_pending or not _is_too_old(held, group, committed, now_ms):
                keeps_some = True
            else:
                records.append(offset_tombstone(group_id, topic, number))
    is_left = group.is_empty and not (isinstance(group, ClassicGroup) and group.pending)
    if is_left and not keeps_some:
        records += group.tombstones()
    return records


def _is_too_old(held: Holder, group: Group, committed: Committed, now_ms: int) -> bool:
    from_ms: int | None = committed.committed_ms
    if isinstance(group, ClassicGroup):
        from_ms = group.retention_from_ms(committed.committed_ms)
    if from_ms is None:
        return False
    if committed.expires_ms != NO_EXPIRY:
        return now_ms >= committed.expires_ms
    return now_ms - from_ms >= held.settings.offsets_retention_ms
