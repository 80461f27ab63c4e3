"""Pending delayed messages in due order: the newest in a heap in memory, all others in sorted runs on disk.

A run is sorted once, when it is full, and stored in a file. The next few entries of each run are in memory, so the
cost of finding due messages does not grow with the number of pending messages. Runs are never merged: messages arrive
in offset order, so each run has its own range of offsets, by which a message to cancel is found.
"""

import struct
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush, merge
from itertools import islice
from typing import Final

from penstock.delays.entries import CANCELLED, ENTRY_BYTES, RANK_BYTES, Entry, Rank, rank_at, read_entry
from penstock.delays.run_storage import RunStorage
from penstock.records import kernel

RUN_ENTRIES: Final = 1 << 16
HEAD_ENTRIES: Final = 256
"""Maximum number of entries of each run (a sorted block of entries on disk) that are kept in memory."""
_OFFSETS: Final = struct.Struct(">8xq16x")
_STATE_AT: Final = 16
_IS_CANCELLED: Final = bytes(state & CANCELLED for state in range(256))
_HASH_AT: Final = 17
_HASH_END: Final = 24


class _Run:
    """A sorted block of entries of pending messages, stored on disk, with the position of the next entry to take."""

    __slots__ = ("_head", "_head_at", "_storage", "at", "first_offset", "last_offset", "number", "size")

    def __init__(self, storage: RunStorage, number: int, size: int, first_offset: int, last_offset: int) -> None:
        self._storage = storage
        self.number = number
        self.size = size
        self.at = 0
        """Byte position of the next entry that is not consumed."""
        self.first_offset = first_offset
        self.last_offset = last_offset
        self._head = b""
        self._head_at = 0

    @property
    def next(self) -> bytes | None:
        if self.at >= self.size:
            return None
        position = self.at - self._head_at
        if not 0 <= position < len(self._head):
            self._head = self._storage.read(self.number, self.at, HEAD_ENTRIES * ENTRY_BYTES)
            self._head_at, position = self.at, 0
        return self._head[position : position + ENTRY_BYTES]

    def rest(self, at: int | None = None) -> bytes:
        """Returns all entries that were not taken yet; if `at` is given, only those from byte position `at` on."""
        at = self.at if at is None else max(at, self.at)
        return self._storage.read(self.number, at, self.size - at)

    def find(self, offset: int) -> int | None:
        """Returns the byte position of the entry of the message at topic offset `offset`; None if this run does not
        contain the message, or no longer."""
        wanted, data = offset.to_bytes(8, "big"), self.rest()
        at = data.find(wanted)
        while at >= 0:
            if at % ENTRY_BYTES == 8:
                return self.at + at - 8
            at = data.find(wanted, at + 1)
        return None

    def entry(self, at: int) -> Entry:
        return read_entry(self._storage.read(self.number, at, ENTRY_BYTES))

    def cancel(self, at: int) -> None:
        self._storage.patch(self.number, at + _STATE_AT, bytes((self.entry(at).state | CANCELLED,)))
        self._head = b""  # it may contain the old state

    def position_after(self, rank: bytes) -> int:
        """Returns the byte position of the first entry after `rank`, which is a packed due time and offset."""
        low, high = self.at // ENTRY_BYTES, self.size // ENTRY_BYTES
        while low < high:
            middle = (low + high) // 2
            if self._storage.read(self.number, middle * ENTRY_BYTES, RANK_BYTES) <= rank:
                low = middle + 1
            else:
                high = middle
        return low * ENTRY_BYTES

    def entries_from(self, at: int) -> Iterator[bytes]:
        while at < self.size:
            data = self._storage.read(self.number, at, min(HEAD_ENTRIES * ENTRY_BYTES, self.size - at))
            yield from (data[position : position + ENTRY_BYTES] for position in range(0, len(data), ENTRY_BYTES))
            at += len(data)


class Pending:
    """Entries of the pending delayed messages of one partition, by due time. New entries are in memory. Every
    RUN_ENTRIES of them are sorted and moved to disk as a run, of which at most HEAD_ENTRIES are also in memory."""

    def __init__(self, storage: RunStorage, run_entries: int = RUN_ENTRIES) -> None:
        self._storage = storage
        self._run_bytes = run_entries * ENTRY_BYTES
        self._incoming = bytearray()
        self._heap: list[bytes] = []
        self._fresh: dict[int, bytes] = {}
        """The packed entries in `_heap`, by topic offset. Neither contains entries that are stored on disk."""
        self._runs: dict[int, _Run] = {}
        self._heads: list[tuple[bytes, int]] = []
        """Heap with the next entry of every run (sorted block on disk) and the run's number, earliest first."""
        self.count = 0
        """Number of pending messages, without cancelled messages."""

    def __len__(self) -> int:
        """Returns the number of all entries, including those of cancelled messages."""
        runs = sum(run.size - run.at for run in self._runs.values())
        return (len(self._incoming) + runs) // ENTRY_BYTES + len(self._heap)

    # -- adding

    def add(self, entries: bytes) -> None:
        """Adds entries, packed by `Entry.pack` and concatenated."""
        self._incoming += entries
        states = entries[_STATE_AT::ENTRY_BYTES]
        self.count += len(states) - states.translate(_IS_CANCELLED).count(1)
        if len(self._incoming) + len(self._heap) * ENTRY_BYTES >= self._run_bytes:
            self._spill()

    def _drain_incoming(self) -> None:
        """Moves newly added entries into the heap."""
        data, self._incoming = bytes(self._incoming), bytearray()
        for at in range(0, len(data), ENTRY_BYTES):
            entry = data[at : at + ENTRY_BYTES]
            heappush(self._heap, entry)
            self._fresh[rank_at(entry).offset] = entry

    def _spill(self) -> None:
        block, self._incoming = self._incoming, bytearray()
        block += b"".join(self._heap)
        self._heap, self._fresh = [], {}
        kernel.active.sort_entries(block)
        for start in range(0, len(block), self._run_bytes):
            self._add_run(block[start : start + self._run_bytes])

    def _add_run(self, block: bytearray) -> None:
        offsets = [offset for (offset,) in _OFFSETS.iter_unpack(block)]
        run = _Run(self._storage, self._storage.put(block), len(block), min(offsets), max(offsets))
        self._runs[run.number] = run
        self._push_head(run)

    def _push_head(self, run: _Run) -> None:
        head = run.next
        if head is None:
            del self._runs[run.number]
            self._storage.drop(run.number)
        else:
            heappush(self._heads, (head, run.number))

    # -- removing

    @property
    def next_due_ms(self) -> int | None:
        """Due time of the first entry, even if it is cancelled; None if there are no entries."""
        if self._incoming:
            self._drain_incoming()
        first = [*self._heap[:1], *(head for head, _ in self._heads[:1])]
        return rank_at(min(first)).due_ms if first else None

    def pop_to(self, last: Rank, count_max: int | None = None) -> list[Entry]:
        """Removes and returns, in order, the entries up to and including rank `last` (due time and topic offset): at
        most `count_max` entries, or all if it is None."""
        if self._incoming:
            self._drain_incoming()
        heap, heads = self._heap, self._heads
        taken: list[Entry] = []
        limit = last.pack() + b"\xff" * (ENTRY_BYTES - RANK_BYTES)
        while count_max is None or len(taken) < count_max:
            from_run = bool(heads) and (not heap or heads[0][0] < heap[0])
            if from_run:
                if heads[0][0] > limit:
                    break
                run = self._runs[heappop(heads)[1]]
                head = run.next  # not the copy in `heads`, which may have been cancelled since
                assert head is not None
                run.at += ENTRY_BYTES
                self._push_head(run)
                entry = read_entry(head)
            elif heap and heap[0] <= limit:
                known = heappop(heap)
                entry = read_entry(known)
                if self._fresh.get(entry.offset) is not known:  # cancelled since, or a duplicate
                    entry = entry.cancelled()
                else:
                    del self._fresh[entry.offset]
            else:
                break
            taken.append(entry)
        self.count -= sum(entry.is_live for entry in taken)
        return taken

    def put_back(self, entries: Iterable[Entry]) -> None:
        self.add(b"".join(entry.pack() for entry in entries))

    # -- finding

    def find(self, offset: int) -> Entry | None:
        """Returns the entry of a message; None if the message is not pending or is cancelled."""
        if self._incoming:
            self._drain_incoming()
        known = self._fresh.get(offset)
        if known is not None:
            entry = read_entry(known)
            return entry if entry.is_live else None
        for run, at in self._in_runs(offset):
            entry = run.entry(at)
            if entry.is_live:
                return entry
        return None

    def _in_runs(self, offset: int) -> Iterator[tuple[_Run, int]]:
        for run in list(self._runs.values()):
            if run.first_offset <= offset <= run.last_offset:
                at = run.find(offset)
                if at is not None:
                    yield run, at

    def cancel(self, offset: int) -> bool:
        """Cancels a message; returns whether it was pending. Its entry, marked as cancelled, is removed only at the
        due time."""
        entry = self.find(offset)
        if entry is None:
            return False
        self.count -= 1
        if offset in self._fresh:
            cancelled = entry.cancelled().pack()
            self._heap[self._heap.index(self._fresh[offset])] = cancelled
            self._fresh[offset] = cancelled
            heapify(self._heap)
            return True
        for run, at in self._in_runs(offset):
            run.cancel(at)
        return True

    def with_hash(self, key_hash: bytes) -> Iterator[list[Entry]]:
        """Yields the uncancelled entries whose keys have this hash: one list for the entries in memory, then one
        per run (sorted block on disk), so the caller can pause in between."""
        if self._incoming:
            self._drain_incoming()
        fresh = (read_entry(entry) for entry in list(self._heap) if entry[_HASH_AT:_HASH_END] == key_hash)
        runs = list(self._runs)
        yield [entry for entry in fresh if entry.is_live]
        for number in runs:
            run = self._runs.get(number)
            if run is not None:
                yield list(_with_hash(run.rest(), key_hash))

    def page(self, after: Rank, count_max: int) -> list[Entry]:
        """Returns up to `count_max` uncancelled entries, in delivery order, that follow the rank `after` (due time
        and topic offset). If the due time in `after` is negative, returns the first entries."""
        if self._incoming:
            self._drain_incoming()
        rank = after.pack() + b"\xff" * (ENTRY_BYTES - RANK_BYTES) if after.due_ms >= 0 else b""
        parts: list[Iterator[bytes]] = [iter(sorted(entry for entry in self._heap if entry > rank))]
        parts += (run.entries_from(run.position_after(rank[:RANK_BYTES])) for run in self._runs.values())
        live = (entry for entry in map(read_entry, merge(*parts)) if entry.is_live)
        return list(islice(live, count_max))

    def drop_from(self, offset: int) -> None:
        """Removes messages at this topic offset and above, because an unclean election has truncated the topic
        there."""
        found = self.pop_to(Rank(2**63 - 1, 2**63 - 1))
        self.put_back(entry for entry in found if entry.offset < offset)

    def close(self) -> None:
        self._storage.close()


def _with_hash(data: bytes, key_hash: bytes) -> Iterator[Entry]:
    at = data.find(key_hash)
    while at >= 0:
        if at % ENTRY_BYTES == _HASH_AT:
            entry = read_entry(data, at - _HASH_AT)
            if entry.is_live:
                yield entry
        at = data.find(key_hash, at + 1)
