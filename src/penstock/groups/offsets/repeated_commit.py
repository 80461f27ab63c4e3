"""Fast path of OffsetCommit for members that repeatedly commit new offsets of the same partitions. Pure.

Every commit is still checked by commit.py, and its records and resulting state are those of an ordinary commit.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.cluster.image import Topic
from penstock.foundation.decision import ClientRequest
from penstock.foundation.errors import PenstockError
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.offsets.commit import IDS_FROM_VERSION, check_commit, find_topic
from penstock.groups.offsets.committed import Committed
from penstock.records.build import build_pairs
from penstock.records.layout import HEADER_BYTES
from penstock.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from penstock.wire.templates import make_template

PARTITIONS_MAX: Final = 500
"""Maximum number of partitions of a commit on the fast path; larger commits are rare and may need several batches."""


CommitValues = tuple[tuple[int, ...], tuple[int, ...]]
"""The values that differ between repeated commits: all offsets and all leader epochs, in the order of partitions."""


class _TopicCommit(NamedTuple):
    """The partitions of one topic in an OffsetCommit request that a client repeats with other offsets."""

    entry: OffsetCommitRequestTopic
    topic: Topic
    numbers: Sequence[int]
    metadata: Sequence[str]
    span: slice
    """Slice of the tuples in CommitValues that belongs to the partitions of this topic."""


class RepeatedCommit:
    """An OffsetCommit request that a client repeats with other offsets and leader epochs. Checks the member each
    time, but reuses the encoded records. Implements RepeatedDecision in foundation/decision.py."""

    def __init__(self, coordinator: GroupCoordinator, command: ClientRequest, parts: Sequence[_TopicCommit]) -> None:
        self._coordinator = coordinator
        self._request: OffsetCommitRequest = command.body
        self.group_id: Final = self._request.group_id
        self._version = command.version
        self._settings = coordinator.settings
        self._parts = parts
        self._tps = [(part.topic.topic_id, number) for part in parts for number in part.numbers]
        self.count: Final = len(self._tps)
        template = make_template(self._records(0), self._records(-1), ("q", "i", "q") * self.count)
        self._pack = template.layout.pack
        self._fields = list(template.fields)

    @classmethod
    def of(cls, coordinator: GroupCoordinator, command: ClientRequest, now_ms: int) -> "RepeatedCommit | None":
        """Returns an object that handles further OffsetCommits which differ from this one only in offsets and
        leader epochs. Returns None if the commit is not allowed now, or if the fast path does not support it."""
        request: OffsetCommitRequest = command.body
        parts = []
        start = 0
        for entry in request.topics:
            topic = find_topic(coordinator, entry, command.version >= IDS_FROM_VERSION)
            numbers = [partition.partition_index for partition in entry.partitions]
            metadata = [partition.committed_metadata or "" for partition in entry.partitions]
            if not isinstance(topic, Topic) or not topic.partitions.keys() >= set(numbers):
                return None
            if any(len(text) > coordinator.settings.metadata_bytes_max for text in metadata):
                return None
            parts.append(_TopicCommit(entry, topic, numbers, metadata, slice(start, start + len(numbers))))
            start += len(numbers)
        if request.retention_time_ms >= 0 or not 0 < start <= PARTITIONS_MAX:
            return None
        made = cls(coordinator, command, parts)
        return made if made.is_allowed(now_ms) else None

    def _records(self, number: int) -> bytes:
        """Returns the encoded records of a commit in which every offset, leader epoch and time is `number`. Two such
        encodings with different numbers show where these values are in the records."""
        made = []
        for _, topic, numbers, metadata, _ in self._parts:
            for partition, text in zip(numbers, metadata, strict=True):
                committed = Committed(
                    offset=number, leader_epoch=number, metadata=text, committed_ms=number, topic_id=topic.topic_id
                )
                made.append(committed.to_record(self.group_id, topic.name, partition))
        return bytes(build_pairs([(record.key, record.value) for record in made], 0)[HEADER_BYTES:])

    def is_allowed(self, now_ms: int) -> bool:
        """Whether the member may still make this commit; if so, restarts a classic member's session timeout."""
        coordinator = self._coordinator
        if coordinator.settings is not self._settings:
            return False  # the metadata may be too long now
        for part in self._parts:
            if find_topic(coordinator, part.entry, self._version >= IDS_FROM_VERSION) is not part.topic:
                return False  # the topic was replaced or has changed
        try:
            check_commit(coordinator, self._request, self._tps, self._version, now_ms)
        except PenstockError:
            return False
        return True

    # -- RepeatedDecision

    def decide(self, values: CommitValues, now_ms: int) -> bytes | None:
        if not self.is_allowed(now_ms):
            return None
        fields = self._fields  # bytes, offset, leader epoch, bytes, time; and so on
        fields[1::5], fields[2::5] = values
        fields[4::5] = (now_ms,) * self.count
        return self._pack(*fields)

    def apply(self, values: CommitValues, now_ms: int) -> None:
        coordinator, group_id = self._coordinator, self.group_id
        offsets, leader_epochs = values
        for _, topic, numbers, metadata, span in self._parts:
            commits = zip(numbers, offsets[span], leader_epochs[span], metadata, strict=True)
            coordinator.offsets.put_all(group_id, topic, commits, now_ms)
        if group_id not in coordinator.groups:
            coordinator.create_or_remove_group(group_id)
