"""How Fetch reads records for consumers: from the log, through the filter of delayed messages, or through a view.

A view is a filtered virtual topic.
"""

from typing import Protocol

from penstock.replication.partition import Partition
from penstock.replication.visibility_filter import VisibleRecords


class PartitionReader(Protocol):
    """Reads a partition of a view (filtered virtual topic); implemented in broker/views/view_fetch.py."""

    @property
    def topic_id(self) -> bytes:
        """Id of the source topic, from which this reader's view (filtered virtual topic) selects records."""

    @property
    def kept_bytes(self) -> int:
        """Total size, in bytes, of the records found that match the view's filter, without the control batch that
        moves consumers past offsets without a match."""

    def read(
        self, partition: Partition, offset: int, max_bytes: int, *, blocking: bool, force: bool, stable: bool
    ) -> VisibleRecords:
        """Returns records that match this reader's view (filtered virtual topic). Has the parameters and errors of
        `read_visible`."""


def read_visible(
    partition: Partition, offset: int, max_bytes: int, *, blocking: bool, force: bool, stable: bool
) -> VisibleRecords:
    """Reads the records that consumers of a topic may see.

    `force`: reads the first batch at any size. `stable`: reads only up to the last stable offset (read_committed).
    Raises OffsetOutOfRange; unless `blocking`, also ColdRead if it would wait for the disk.
    """
    if partition.visibility is not None:
        return partition.visibility.read(offset, max_bytes, blocking=blocking, force=force, stable=stable)
    records = partition.read(offset, max_bytes, blocking=blocking, force=force, stable=stable)
    return VisibleRecords(records, partition.high_watermark, partition.last_stable_offset)
