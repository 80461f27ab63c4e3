"""All messages that wait, in the order in which they are due: the newest in memory, all others in sorted runs.

A run is sorted once, when it is full, and lies on a shelf (a file). Of each run the next few entries are in memory,
so that finding what is due costs nothing that grows with how much waits. Nothing is ever merged: messages come in the
order of their offsets, so that a run has a range of offsets of its own, by which one is found that is cancelled.
"""

import struct
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush, merge
from itertools import islice
from typing import Final

from penstock.delays.entries import CANCELLED, ENTRY_BYTES, RANK_BYTES, Entry, Rank, rank_at, read_entry
from penstock.delays.run_storage import Shelf
from penstock.records import kernel

RUN_ENTRIES: Final = 1 << 16
HEAD_ENTRIES: Final = 256
"""Of a run, in memory."""
_OFFSETS: Final = struct.Struct(">8xq16x")
_STATE_AT: Final = 16
_IS_CANCELLED: Final = bytes(state & CANCELLED for state in range(256))
_HASH_AT: Final = 17
_HASH_END: Final = 24


class _Run:
    """A sorted block of entries, and how far it is worked off."""

    __slots__ = ("_head", "_head_at", "_shelf", "at", "first_offset", "last_offset", "number", "size")

    def __init__(self, shelf: Shelf, number: int, size: int, first_offset: int, last_offset: int) -> None:
        self._shelf = shelf
        self.number = number
        self.size = size
        self.at = 0
        """Of the next entry, in bytes."""
        self.first_offset = first_offset
        self.last_offset = last_offset
        self._head = b""
        self._head_at = 0

    @property
    def next(self) -> bytes | None:
        if self.at >= self.size:
            return None
        place = self.at - self._head_at
        if not 0 <= place < len(self._head):
            self._head = self._shelf.read(self.number, self.at, HEAD_ENTRIES * ENTRY_BYTES)
            self._head_at, place = self.at, 0
        return self._head[place : place + ENTRY_BYTES]

    def rest(self, at: int | None = None) -> bytes:
        """All that is not worked off, or all from a place on."""
        at = self.at if at is None else max(at, self.at)
        return self._shelf.read(self.number, at, self.size - at)

    def find(self, offset: int) -> int | None:
        """Where the entry of an offset lies, if it is here and not worked off."""
        wanted, data = offset.to_bytes(8, "big"), self.rest()
        at = data.find(wanted)
        while at >= 0:
            if at % ENTRY_BYTES == 8:
                return self.at + at - 8
            at = data.find(wanted, at + 1)
        return None

    def entry(self, at: int) -> Entry:
        return read_entry(self._shelf.read(self.number, at, ENTRY_BYTES))

    def cancel(self, at: int) -> None:
        self._shelf.patch(self.number, at + _STATE_AT, bytes((self.entry(at).state | CANCELLED,)))
        self._head = b""  # it may be in there

    def place_after(self, rank: bytes) -> int:
        """Where the first entry behind a rank lies."""
        low, high = self.at // ENTRY_BYTES, self.size // ENTRY_BYTES
        while low < high:
            middle = (low + high) // 2
            if self._shelf.read(self.number, middle * ENTRY_BYTES, RANK_BYTES) <= rank:
                low = middle + 1
            else:
                high = middle
        return low * ENTRY_BYTES

    def entries_from(self, at: int) -> Iterator[bytes]:
        while at < self.size:
            data = self._shelf.read(self.number, at, min(HEAD_ENTRIES * ENTRY_BYTES, self.size - at))
            yield from (data[place : place + ENTRY_BYTES] for place in range(0, len(data), ENTRY_BYTES))
            at += len(data)


class Pending:
    """Messages that wait. In memory there are at most RUN_ENTRIES and a little of every run."""

    def __init__(self, shelf: Shelf, run_entries: int = RUN_ENTRIES) -> None:
        self._shelf = shelf
        self._run_bytes = run_entries * ENTRY_BYTES
        self._incoming = bytearray()
        self._heap: list[bytes] = []
        self._fresh: dict[int, bytes] = {}
        """What is in the heap, by offset."""
        self._runs: dict[int, _Run] = {}
        self._heads: list[tuple[bytes, int]] = []
        """The next entry of every run, smallest first."""
        self.count = 0
        """Those that are not cancelled."""

    def __len__(self) -> int:
        """All of them, cancelled ones too."""
        runs = sum(run.size - run.at for run in self._runs.values())
        return (len(self._incoming) + runs) // ENTRY_BYTES + len(self._heap)

    # -- coming

    def add(self, entries: bytes) -> None:
        """Entries as `Entry.pack` writes them, one after another."""
        self._incoming += entries
        states = entries[_STATE_AT::ENTRY_BYTES]
        self.count += len(states) - states.translate(_IS_CANCELLED).count(1)
        if len(self._incoming) + len(self._heap) * ENTRY_BYTES >= self._run_bytes:
            self._spill()

    def _take_in(self) -> None:
        """What has come is found like all else from now on."""
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
        run = _Run(self._shelf, self._shelf.put(block), len(block), min(offsets), max(offsets))
        self._runs[run.number] = run
        self._push_head(run)

    def _push_head(self, run: _Run) -> None:
        head = run.next
        if head is None:
            del self._runs[run.number]
            self._shelf.drop(run.number)
        else:
            heappush(self._heads, (head, run.number))

    # -- going

    @property
    def next_due_ms(self) -> int | None:
        """When the first of them is due, cancelled or not."""
        if self._incoming:
            self._take_in()
        first = [*self._heap[:1], *(head for head, _ in self._heads[:1])]
        return rank_at(min(first)).due_ms if first else None

    def pop_to(self, last: Rank, count_max: int | None = None) -> list[Entry]:
        """Take out all up to a rank, in order, or the first so many of them."""
        if self._incoming:
            self._take_in()
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
                if self._fresh.get(entry.offset) is not known:  # cancelled since, or known twice
                    entry = entry.cancelled()
                else:
                    del self._fresh[entry.offset]
            else:
                break
            taken.append(entry)
        self.count -= sum(entry.is_live for entry in taken)
        return taken

    def give_back(self, entries: Iterable[Entry]) -> None:
        self.add(b"".join(entry.pack() for entry in entries))

    # -- finding

    def find(self, offset: int) -> Entry | None:
        """The message of an offset, if it waits and is not cancelled."""
        if self._incoming:
            self._take_in()
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
        """Whether it waited. It stays, as one that was cancelled, until its time has come."""
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
        """Those whose keys have this hash, a run at a time: whoever looks may do other things in between."""
        if self._incoming:
            self._take_in()
        fresh = (read_entry(entry) for entry in list(self._heap) if entry[_HASH_AT:_HASH_END] == key_hash)
        runs = list(self._runs)
        yield [entry for entry in fresh if entry.is_live]
        for number in runs:
            run = self._runs.get(number)
            if run is not None:
                yield list(_with_hash(run.rest(), key_hash))

    def page(self, after: Rank, count_max: int) -> list[Entry]:
        """The next messages after a rank (one of a negative time is before all), less those that are cancelled."""
        if self._incoming:
            self._take_in()
        rank = after.pack() + b"\xff" * (ENTRY_BYTES - RANK_BYTES) if after.due_ms >= 0 else b""
        parts: list[Iterator[bytes]] = [iter(sorted(entry for entry in self._heap if entry > rank))]
        parts += (run.entries_from(run.place_after(rank[:RANK_BYTES])) for run in self._runs.values())
        live = (entry for entry in map(read_entry, merge(*parts)) if entry.is_live)
        return list(islice(live, count_max))

    def drop_from(self, offset: int) -> None:
        """Forget the messages from an offset on, which were lost where they came from."""
        found = self.pop_to(Rank(2**63 - 1, 2**63 - 1))
        self.give_back(entry for entry in found if entry.offset < offset)

    def close(self) -> None:
        self._shelf.close()


def _with_hash(data: bytes, key_hash: bytes) -> Iterator[Entry]:
    at = data.find(key_hash)
    while at >= 0:
        if at % ENTRY_BYTES == _HASH_AT:
            entry = read_entry(data, at - _HASH_AT)
            if entry.is_live:
                yield entry
        at = data.find(key_hash, at + 1)
