"""What a change of topics means for groups: offsets of deleted topics go, subscriptions are resolved again. Pure.

Both are done a piece at a time: a group may have offsets in 10,000 partitions, and there may be thousands of groups.
"""

from itertools import islice
from typing import Final, NamedTuple

from penstock.foundation.decision import StateRecord
from penstock.groups.classic.group import RETRY_MS
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.group import Holder
from penstock.groups.offsets.committed import offset_tombstone
from penstock.groups.share.group import ShareGroup
from penstock.groups.streams.group import StreamsGroup

FOLLOWING: Final = (ConsumerGroup, ShareGroup, StreamsGroup)
"""Groups whose assignment follows the topics; in a classic one, members look at the topics themselves."""
TOMBSTONES_AT_ONCE: Final = 500
GROUPS_AT_ONCE: Final = 10
PAUSE_MS: Final = 5
"""Before the next piece: time for what was decided to be persisted."""


class Piece(NamedTuple):
    """What is to be persisted, and when to go on; None: everything is as the topics are."""

    records: tuple[StateRecord, ...]
    again_ms: int | None


class TopicChanges:
    """What is left to do since topics have changed. Goes on until nothing is left that had to be persisted."""

    def __init__(self, held: Holder) -> None:
        self._held = held
        self._deleted: set[str] = set()
        """Topics whose offsets are being removed."""
        self._unresolved: dict[str, None] = {}
        """Groups that have not looked at the newest image."""
        self._resolved: dict[str, None] = {}
        """Groups that have, and of which it is not known whether the outcome was persisted."""

    def note(self, deleted: frozenset[str]) -> None:
        """The coordinator has a new image."""
        self._deleted |= deleted
        self._resolved = {}
        self._unresolved = dict.fromkeys(
            group_id for group_id, group in self._held.groups.items() if isinstance(group, FOLLOWING)
        )

    def go_on(self, now_ms: int) -> Piece:
        """Returns the next piece."""
        stale = self._stale_offsets()
        records = stale[:TOMBSTONES_AT_ONCE]
        for group_id in list(islice(self._unresolved, GROUPS_AT_ONCE)):
            del self._unresolved[group_id]
            group = self._held.groups.get(group_id)
            changes = group.topics_changed(now_ms).persist if isinstance(group, FOLLOWING) else ()
            if changes:
                records += changes
                self._resolved[group_id] = None
        if self._unresolved or len(stale) > TOMBSTONES_AT_ONCE:
            return Piece(tuple(records), now_ms + PAUSE_MS)
        if records or self._resolved:
            self._unresolved, self._resolved = self._resolved, {}
            return Piece(tuple(records), now_ms + RETRY_MS)
        self._deleted.clear()
        return Piece((), None)

    def _stale_offsets(self) -> list[StateRecord]:
        """Tombstones of offsets that are not those of the topic that has the name now, and one more than are written
        at once."""
        records: list[StateRecord] = []
        for topic in sorted(self._deleted):
            room = TOMBSTONES_AT_ONCE + 1 - len(records)
            records += (offset_tombstone(group_id, topic, number) for group_id, number in self._stale(topic)[:room])
        return records

    def _stale(self, topic: str) -> list[tuple[str, int]]:
        known = self._held.image.shown_by_name.get(topic)
        topic_id = known.topic_id if known else None
        offsets = list(self._held.offsets.of_topic(topic))
        current = {(group_id, number) for group_id, number, found in offsets if found.topic_id == topic_id}
        places = ((group_id, number) for group_id, number, _ in offsets if (group_id, number) not in current)
        return list(dict.fromkeys(places))
