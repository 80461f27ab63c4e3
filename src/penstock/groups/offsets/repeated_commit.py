"""The same commit over and over: members commit the same partitions again, and only the numbers differ.

Pure. Who may commit is asked in the one place that knows (commit.py), every time; what is persisted is what
would be persisted of a commit that nobody has seen before, and so is what comes to hold.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.cluster.image import Topic
from penstock.foundation.decision import Ask
from penstock.foundation.errors import PenstockError
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.offsets.commit import IDS_FROM_VERSION, check_commit, find_topic
from penstock.groups.offsets.committed import Committed
from penstock.records.build import build_pairs
from penstock.records.layout import HEADER_BYTES
from penstock.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from penstock.wire.templates import find_holes

PARTITIONS_MAX: Final = 500
"""Of one commit: more are rare, and their records would have to be put into several batches at some point."""


Said = tuple[tuple[int, ...], tuple[int, ...]]
"""What is new in a commit: offsets and leader epochs, in the order of its partitions."""


class _Part(NamedTuple):
    """The partitions of one topic."""

    entry: OffsetCommitRequestTopic
    topic: Topic
    numbers: Sequence[int]
    metadata: Sequence[str]
    span: slice
    """Which of the commit's numbers are theirs."""


class Recommit:
    """A commit that was answered without errors, to be decided again. A Repeated: see foundation/decision.py."""

    def __init__(self, held: GroupCoordinator, ask: Ask, parts: Sequence[_Part]) -> None:
        self._held = held
        self._request: OffsetCommitRequest = ask.body
        self.group_id: Final = self._request.group_id
        self._version = ask.version
        self._settings = held.settings
        self._parts = parts
        self._places = [(part.topic.topic_id, number) for part in parts for number in part.numbers]
        self.count: Final = len(self._places)
        holes = find_holes(self._records(0), self._records(-1), ("q", "i", "q") * self.count)
        self._pack = holes.layout.pack
        self._fields = list(holes.fields)

    @classmethod
    def of(cls, held: GroupCoordinator, ask: Ask, now_ms: int) -> "Recommit | None":
        """None if such a commit is not allowed now, or is of an unusual kind."""
        request: OffsetCommitRequest = ask.body
        parts = []
        start = 0
        for entry in request.topics:
            topic = find_topic(held, entry, ask.version >= IDS_FROM_VERSION)
            numbers = [partition.partition_index for partition in entry.partitions]
            metadata = [partition.committed_metadata or "" for partition in entry.partitions]
            if not isinstance(topic, Topic) or not topic.partitions.keys() >= set(numbers):
                return None
            if any(len(text) > held.settings.metadata_bytes_max for text in metadata):
                return None
            parts.append(_Part(entry, topic, numbers, metadata, slice(start, start + len(numbers))))
            start += len(numbers)
        if request.retention_time_ms >= 0 or not 0 < start <= PARTITIONS_MAX:
            return None
        made = cls(held, ask, parts)
        return made if made.is_allowed(now_ms) else None

    def _records(self, number: int) -> bytes:
        """As they stand in a batch, with this in the place of everything that differs."""
        made = []
        for _, topic, numbers, metadata, _ in self._parts:
            for partition, text in zip(numbers, metadata, strict=True):
                committed = Committed(
                    offset=number, leader_epoch=number, metadata=text, committed_ms=number, topic_id=topic.topic_id
                )
                made.append(committed.to_record(self.group_id, topic.name, partition))
        return bytes(build_pairs([(record.key, record.value) for record in made], 0)[HEADER_BYTES:])

    def is_allowed(self, now_ms: int) -> bool:
        """Whether it may be committed still; then its member has been heard of."""
        held = self._held
        if held.settings is not self._settings:
            return False  # the metadata may be too long now
        for part in self._parts:
            if find_topic(held, part.entry, self._version >= IDS_FROM_VERSION) is not part.topic:
                return False  # it may be another one of that name, or have changed
        try:
            check_commit(held, self._request, self._places, self._version, now_ms)
        except PenstockError:
            return False
        return True

    # -- once more

    def decide(self, said: Said, now_ms: int) -> bytes | None:
        if not self.is_allowed(now_ms):
            return None
        fields = self._fields  # bytes, offset, leader epoch, bytes, time; and so on
        fields[1::5], fields[2::5] = said
        fields[4::5] = (now_ms,) * self.count
        return self._pack(*fields)

    def apply(self, said: Said, now_ms: int) -> None:
        held, group_id = self._held, self.group_id
        offsets, leader_epochs = said
        for _, topic, numbers, metadata, span in self._parts:
            commits = zip(numbers, offsets[span], leader_epochs[span], metadata, strict=True)
            held.offsets.put_all(group_id, topic, commits, now_ms)
        if group_id not in held.groups:
            held.settle(group_id)
