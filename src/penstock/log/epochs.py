"""The leader epoch cache: the start offset of each leader epoch, for truncation and OffsetForLeaderEpoch. Pure."""

import json
from bisect import bisect_right
from collections.abc import Iterable

NO_EPOCH = -1
NO_OFFSET = -1


class LeaderEpochCache:
    """The start offset of each leader epoch, as (epoch, start offset) pairs, both increasing."""

    __slots__ = ("entries", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.entries: list[tuple[int, int]] = list(entries)
        self.latest = self.entries[-1][0] if self.entries else NO_EPOCH

    @property
    def latest_start(self) -> int:
        return self.entries[-1][1] if self.entries else NO_OFFSET

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Adds `epoch`, which starts at the log end offset `start_offset`, if it is newer than the cached epochs.
        Before that, removes cached epochs that start there, since they have no batches. Returns whether the cache
        changed."""
        if epoch == self.latest:
            return False
        # An epoch without batches, whose leader wrote nothing, is replaced by the epoch of the batch at its offset.
        # That may be an older one: another replica had the batch, and leads in a later epoch.
        is_changed = self.truncate_from_end(start_offset)
        if epoch > self.latest:
            self.entries.append((epoch, start_offset))
            self.latest = epoch
            is_changed = True
        return is_changed

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Returns the largest cached epoch at or below `epoch`, and the offset at which that epoch ends (KIP-101).

        Returns `epoch` itself and the start offset of the first cached epoch if `epoch` is before all cached epochs;
        (-1, -1) if `epoch` is -1 or later than all cached epochs.
        """
        if epoch == NO_EPOCH or epoch > self.latest:
            return NO_EPOCH, NO_OFFSET
        after = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        end = self.entries[after][1] if after < len(self.entries) else log_end
        if after == 0:
            return epoch, end
        return self.entries[after - 1][0], end

    def at(self, offset: int) -> int:
        """Returns the leader epoch of the batch at `offset`; -1 if the cache does not cover it."""
        after = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[after - 1][0] if after else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> bool:
        """Removes epochs that start at or after the log's new end offset; returns whether any was removed."""
        kept = [entry for entry in self.entries if entry[1] < end_offset]
        changed = len(kept) != len(self.entries)
        self.entries = kept
        self.latest = kept[-1][0] if kept else NO_EPOCH
        return changed

    def truncate_from_start(self, start_offset: int) -> bool:
        """Removes epochs that end at or before the new log start offset, and makes the first remaining epoch start
        there. Returns whether the cache changed."""
        after = bisect_right(self.entries, start_offset, key=lambda entry: entry[1])
        if after == 0:
            return False
        first = (self.entries[after - 1][0], start_offset)
        changed = after > 1 or self.entries[0] != first
        self.entries[:after] = [first]
        return changed

    def dump(self) -> bytes:
        return json.dumps(self.entries).encode()

    @classmethod
    def load(cls, data: bytes) -> "LeaderEpochCache":
        """Parses the output of `dump`. Raises ValueError if it is damaged."""
        try:
            return cls((int(epoch), int(start)) for epoch, start in json.loads(data))
        except TypeError as error:
            raise ValueError(f"epochs are pairs of numbers: {error}") from error
