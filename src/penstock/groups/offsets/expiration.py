"""Expires committed offsets after their retention time, and removes groups without members and offsets."""

from typing import Final

from penstock.foundation.decision import StateRecord
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.group import CoordinatorView, Group
from penstock.groups.offsets.committed import NO_EXPIRY, Committed, offset_tombstone
from penstock.groups.share.group import ShareGroup

OFFSETS_AT_ONCE: Final = 5000
"""Approximate number of offsets that one time slice examines."""

EXPIRED_AT_ONCE: Final = 500
"""Maximum number of offsets of one group that expire in one time slice; later slices expire the rest."""


class ExpirationPass:
    """Expires offsets of all groups that exist when the pass starts; the work is divided into time slices."""

    def __init__(self, coordinator: CoordinatorView) -> None:
        self._coordinator = coordinator
        self._left = list(coordinator.groups)
        self._counts: dict[str, int] = {}
        """Number of offsets that a group had when it was last examined, by group id, if it needs several time
        slices. If the number is the same in the next slice, writes fail, and the group is not examined again."""

    @property
    def is_over(self) -> bool:
        return not self._left

    def run_slice(self, now_ms: int) -> tuple[StateRecord, ...]:
        """Runs the next time slice; returns the tombstones to persist. If they cannot be persisted, the next pass
        returns them again."""
        records: list[StateRecord] = []
        unfinished: list[str] = []
        examined = 0
        while self._left and examined < OFFSETS_AT_ONCE:
            group_id = self._left.pop()
            group = self._coordinator.groups.get(group_id)
            if group is not None:
                count = sum(map(len, self._coordinator.offsets.of_group(group_id).values()))
                examined += 1 + count
                expired = _expired(self._coordinator, group_id, group, now_ms)
                records += expired[:EXPIRED_AT_ONCE]
                if len(expired) > EXPIRED_AT_ONCE and self._counts.get(group_id) != count:
                    self._counts[group_id] = count
                    unfinished.append(group_id)
        self._left += unfinished  # for the next slice: the tombstones of this one are not applied yet
        return tuple(records)


def _expired(coordinator: CoordinatorView, group_id: str, group: Group, now_ms: int) -> list[StateRecord]:
    if isinstance(group, ShareGroup):
        return []  # it has no committed offsets, and exists until it is deleted
    records = []
    keeps_some = coordinator.offsets.has_pending(group_id)
    for topic, table in coordinator.offsets.of_group(group_id).items():
        is_read = group.subscribes_to(topic)
        for number, committed in table.items():
            is_pending = coordinator.offsets.is_pending(group_id, topic, number)
            if is_read or is_pending or not _is_too_old(coordinator, group, committed, now_ms):
                keeps_some = True
            else:
                records.append(offset_tombstone(group_id, topic, number))
    is_left = group.is_empty and not (isinstance(group, ClassicGroup) and group.pending)
    if is_left and not keeps_some:
        records += group.tombstones()
    return records


def _is_too_old(coordinator: CoordinatorView, group: Group, committed: Committed, now_ms: int) -> bool:
    from_ms: int | None = committed.committed_ms
    if isinstance(group, ClassicGroup):
        from_ms = group.retention_from_ms(committed.committed_ms)
    if from_ms is None:
        return False
    if committed.expires_ms != NO_EXPIRY:
        return now_ms >= committed.expires_ms
    return now_ms - from_ms >= coordinator.settings.offsets_retention_ms
