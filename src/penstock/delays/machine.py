"""The messages of one partition that wait for their time: which there are, and what was delivered. Pure.

Its log is the partition's companion log. A message is a record there, under its offset in the topic. What was
delivered is told by one rank: messages are delivered in the order of their ranks, so that all up to it are. For that
to hold, a message that comes late to its own time gets a rank behind all that were taken already. If that rank is far
ahead, because somebody has set the clock back, it keeps its time in another generation: each has a rank of its own.

The rank is noted after the messages are in the topic, with the offset at which the last of them begin there: who
takes over finds by looking from that offset on what was appended, and not noted. That all that was decided before
messages are taken is committed before they are appended makes the two views one: whoever finds them in the topic has
in its companion log what they were chosen from.
"""

import struct
from typing import Any, Final

from penstock.delays.commands import Began, Begin, Cancel, Copy, Deliver, Fired, GiveBack, Rewind, Take
from penstock.delays.entries import (
    BEGAN,
    CANCELLED,
    COPIED,
    ENTRY_BYTES,
    FIRED,
    GENERATION_MAX,
    MESSAGE,
    NOT_ONE,
    Entry,
    Kept,
    Rank,
    Ranks,
    hash_of,
    last_ranks,
    message_key,
    read_entry,
)
from penstock.delays.pending import RUN_ENTRIES, Pending
from penstock.delays.run_storage import Shelf
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import NOTHING, Decision, Reply, StateRecord, Ticket
from penstock.foundation.errors import PenstockError
from penstock.records import kernel
from penstock.records.batch import BatchHeader
from penstock.records.layout import Buffer

_OFFSET: Final = struct.Struct(">q")
_COPIED: Final = struct.Struct(">qB")
_FIRED: Final = struct.Struct(">Bqq")
UNKNOWN: Final = -1
_STATE_AT: Final = 16
_IS_CANCELLED: Final = bytes(state & CANCELLED for state in range(256))
LATE_MAX_MS: Final = 1000
"""A message that comes late to its time waits no longer than this for the rank that it gets."""


class DamagedDelays(PenstockError):
    """A record of delayed messages that this broker cannot read: it is damaged, or of a later version."""

    code = ErrorCode.CORRUPT_MESSAGE


class DelayMachine:
    """See replication/runtime.py for how it is run. It has no time of its own: who asks says what time it is."""

    def __init__(self, shelf: Shelf, run_entries: int = RUN_ENTRIES) -> None:
        self.pending: Final = Pending(shelf, run_entries)
        self.since = UNKNOWN
        """From this offset of the topic on, records with a delay are held back."""
        self.copied_to = UNKNOWN
        """All delayed messages below are kept here, or were not committed."""
        self.fired: Final[Ranks] = {}
        """Of each generation, all messages up to this rank are done with."""
        self._generation = 0
        """That messages are of which come now."""
        self.scan_from = 0
        """Where to look in the topic for what was delivered and is not noted."""
        self._taken: Ranks = {}
        """Of each generation, all messages up to this rank were taken, or are about to be."""
        self._in_flight: list[Entry] = []
        self.delivered_count = 0
        self.cancelled_count = 0
        """Since this machine was made, read back or not."""

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def pending_count(self) -> int:
        """Messages that wait, and are not cancelled."""
        return self.pending.count + sum(entry.is_live for entry in self._in_flight)

    @property
    def wake_at_ms(self) -> int | None:
        return None

    def wake(self, now_ms: int) -> Decision:
        return NOTHING

    def loaded(self, now_ms: int) -> None:
        self._reach(self.fired)

    def _reach(self, ranks: Ranks) -> None:
        for generation, rank in ranks.items():
            self._taken[generation] = max(self._taken.get(generation, NOT_ONE), rank)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Nothing in this log is part of one."""

    # -- deciding

    def decide(self, ticket: Ticket, command: Any, now_ms: int) -> Decision:
        match command:
            case Copy():
                return self._copy(ticket, command)
            case Take():
                return self._take(ticket, command)
            case Fired():
                return self._fire(ticket, command)
            case GiveBack():
                self._give_back()
                return Decision(replies=(Reply(ticket, None),))
            case Cancel():
                return self._cancel(ticket, command)
            case Begin():
                return self._begin(ticket, command)
            case Rewind():
                record = StateRecord(key=COPIED, value=_COPIED.pack(command.end, 1))
                return Decision(persist=(record,), replies=(Reply(ticket, None),))
        raise TypeError(f"no such command: {command!r}")

    def _begin(self, ticket: Ticket, command: Begin) -> Decision:
        if self.since != UNKNOWN:
            return Decision(replies=(Reply(ticket, self.since),), effects=(Began(self.since),))
        record = StateRecord(key=BEGAN, value=_OFFSET.pack(command.offset))
        return Decision(persist=(record,), replies=(Reply(ticket, command.offset),), effects=(Began(command.offset),))

    def _copy(self, ticket: Ticket, command: Copy) -> Decision:
        records, generation = [], self._generation
        for message in command.messages:
            if message.offset < self.copied_to:
                continue
            # Behind all that were taken: the rank that is noted for those says that all before it are done with.
            taken_ms = self._taken.get(generation, NOT_ONE).due_ms
            if message.due_ms < taken_ms > command.now_ms + LATE_MAX_MS and generation < GENERATION_MAX:
                generation, taken_ms = generation + 1, 0
            due_ms = max(message.due_ms, taken_ms, 0)
            kept = Kept(generation << 1, due_ms, hash_of(message.key), message.timestamp_ms, message.raw)
            records.append(StateRecord(key=message_key(message.offset), value=kept.pack()))
        if command.copied_to > self.copied_to:
            records.append(StateRecord(key=COPIED, value=_COPIED.pack(command.copied_to, 0)))
        return Decision(persist=tuple(records), replies=(Reply(ticket, None),), is_whole=True)

    def _take(self, ticket: Ticket, command: Take) -> Decision:
        if self._in_flight:
            return Decision(replies=(Reply(ticket, 0),))
        self._in_flight = self.pending.pop_to(Rank(command.now_ms, 2**63 - 1), command.count_max)
        if not self._in_flight:
            return Decision(replies=(Reply(ticket, 0),))
        self._reach(last_ranks(self._in_flight))
        taken = tuple(self._in_flight)
        return Decision(replies=(Reply(ticket, len(taken)),), effects=(Deliver(taken),))

    def _fire(self, ticket: Ticket, command: Fired) -> Decision:
        offsets = frozenset(command.offsets)
        done = [entry for entry in self._in_flight if entry.offset in offsets]
        if len(done) < len(offsets):  # who has taken over did not take them itself
            found = (self.pending.find(offset) for offset in offsets.difference(entry.offset for entry in done))
            done += (entry for entry in found if entry is not None)
        ranks = last_ranks(done)
        ranks = {one: max(ranks.get(one, NOT_ONE), self.fired.get(one, NOT_ONE)) for one in {*ranks, *self.fired}}
        value = _OFFSET.pack(max(command.scan_from, self.scan_from))
        value += b"".join(_FIRED.pack(generation, *rank) for generation, rank in sorted(ranks.items()))
        records = [StateRecord(key=FIRED, value=value)]
        records += (StateRecord(key=message_key(entry.offset), value=None) for entry in done)
        return Decision(persist=tuple(records), replies=(Reply(ticket, len(done)),), is_whole=True)

    def _give_back(self) -> None:
        taken, self._in_flight = self._in_flight, []
        self.pending.give_back(taken)

    def _cancel(self, ticket: Ticket, command: Cancel) -> Decision:
        """What is being delivered already cannot be cancelled: it may be in the topic."""
        records, replies = [], []
        for offset in dict.fromkeys(command.offsets):
            entry = self.pending.find(offset)
            if entry is not None:
                kept = Kept(entry.state | CANCELLED, entry.due_ms, entry.key_hash, 0, b"")
                records.append(StateRecord(key=message_key(offset), value=kept.pack()))
            replies.append((offset, entry is not None))
        return Decision(persist=tuple(records), replies=(Reply(ticket, dict(replies)),), must_lead=True)

    # -- applying

    def apply_batch(self, batch: Buffer, header: BatchHeader) -> None:
        """All records of a batch of the log."""
        entries, others = kernel.active.pack_entries(batch, MESSAGE)
        if entries:
            self._keep(entries)
        for key, value in others:
            if value is not None:
                try:
                    self._note(key, value)
                except struct.error as error:
                    raise DamagedDelays(f"record {key.hex()} of delayed messages cannot be read: {error}") from error

    def apply(self, record: StateRecord, producer_id: int) -> None:
        raise NotImplementedError("records of this machine have a place in the log: see apply_batch")

    def _keep(self, entries: bytes) -> None:
        states = entries[_STATE_AT::ENTRY_BYTES]
        self._generation = max(self._generation, max(states) >> 1)
        if not states.translate(_IS_CANCELLED).count(1):
            self.pending.add(entries)
            return
        for at in range(0, len(entries), ENTRY_BYTES):
            entry = read_entry(entries, at)
            if entry.is_live:
                self.pending.give_back((entry,))
            else:
                self._apply_cancelled(entry)

    def _apply_cancelled(self, entry: Entry) -> None:
        self.cancelled_count += 1
        # One whose message the log has no more is remembered all the same, until its record can go.
        if not self.pending.cancel(entry.offset) and not self._is_done(entry):
            self.pending.give_back((entry,))

    def _is_done(self, entry: Entry) -> bool:
        return entry.rank <= self.fired.get(entry.generation, NOT_ONE)

    def _note(self, key: bytes, value: bytes) -> None:
        if key == FIRED:
            ranks = {one: Rank(due_ms, offset) for one, due_ms, offset in _FIRED.iter_unpack(value[_OFFSET.size :])}
            self._apply_fired(ranks, *_OFFSET.unpack_from(value))
        elif key == COPIED:
            offset, is_rewound = _COPIED.unpack(value)
            if is_rewound:
                self.copied_to = offset
                self.scan_from = min(self.scan_from, offset)
                self.pending.drop_from(offset)
            else:
                self.copied_to = max(self.copied_to, offset)
        elif key == BEGAN:
            (self.since,) = _OFFSET.unpack(value)
            self.copied_to = max(self.copied_to, self.since)
            self.scan_from = max(self.scan_from, self.since)

    def _apply_fired(self, ranks: Ranks, scan_from: int) -> None:
        self.scan_from = scan_from
        news = {one: rank for one, rank in ranks.items() if rank > self.fired.get(one, NOT_ONE)}
        if not news:
            return
        self.fired.update(news)
        self._reach(news)
        self._generation = max(self._generation, *ranks)
        seen = [*self._in_flight, *self.pending.pop_to(max(news.values()))]
        taken = len(self._in_flight)
        self._in_flight = [entry for entry in self._in_flight if not self._is_done(entry)]
        self.pending.give_back(entry for entry in seen[taken:] if not self._is_done(entry))
        self.delivered_count += sum(entry.is_live and self._is_done(entry) for entry in seen)
