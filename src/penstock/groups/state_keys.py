"""Finds the group id in the key of a `__consumer_offsets` record. Pure."""

from collections.abc import Mapping
from typing import Final

from penstock.groups import records
from penstock.groups.consumer.records import ConsumerRecords
from penstock.groups.share.records import ShareRecords
from penstock.groups.streams.records import StreamsRecords
from penstock.wire.state import kind_of, read_key

KEYS: Final[Mapping[int, type]] = {
    records.OFFSET_COMMIT: records.OffsetCommitKey,
    records.GROUP_METADATA: records.GroupKey,
    records.CONSUMER_GROUP_PARTITION_METADATA: records.GroupKey,
    **{
        kind: key
        for group_records in (ConsumerRecords, ShareRecords, StreamsRecords)
        for kind, (key, _) in group_records.kinds.items()
    },
}
"""The class of the record key, by kind of record."""


def group_of(key: bytes) -> str | None:
    """Returns the group id in a record's key; None if the kind of record is unknown. Raises MalformedRequest."""
    of = KEYS.get(kind_of(key))
    if of is None:
        return None
    group: str = read_key(of, key).group
    return group
