"""The messages of one partition that wait for their time: which there are, and what was delivered. Pure.

Its log is the partition's companion log. A message is a record there, under its offset in the topic. What was
delivered is told by one rank: messages are delivered in the order of their ranks, so that all up to it are. For that
to hold, a message that comes late to its own time gets a rank behind all that were taken already.

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
    FIRED,
    LIVE,
    MESSAGE,
    NOT_ONE,
    RANK_BYTES,
    Entry,
    Kept,
    Rank,
    hash_of,
    message_key,
    rank_at,
)
from penstock.delays.pending import RUN_ENTRIES, Pending
from penstock.delays.shelf import Shelf
from penstock.foundation.decision import NOTHING, Decision, Reply, StateRecord, Ticket
from penstock.records import kernel
from penstock.records.batch import BatchHeader
from penstock.records.layout import Buffer

_OFFSET: Final = struct.Struct(">q")
_COPIED: Final = struct.Struct(">qB")
UNKNOWN: Final = -1


class DelayMachine:
    """See replication/runtime.py for how it is run. It has no time of its own: who asks says what time it is."""

    def __init__(self, shelf: Shelf, run_entries: int = RUN_ENTRIES) -> None:
        self.pending: Final = Pending(shelf, run_entries)
        self.since = UNKNOWN
        """From this offset of the topic on, records with a delay are held back."""
        self.copied_to = UNKNOWN
        """All delayed messages below are kept here, or were not committed."""
        self.fired = NOT_ONE
        """All messages up to this rank are done with."""
        self.scan_from = 0
        """Where to look in the topic for what was delivered and is not noted."""
        self._taken = NOT_ONE
        """All messages up to this rank were taken, or are about to be."""
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
        self._taken = max(self._taken, self.fired)

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
        records = []
        for message in command.messages:
            if message.offset < self.copied_to:
                continue
            # Behind all that were taken: the rank that is noted for those says that all before it are done with.
            due_ms = max(message.due_ms, self._taken.due_ms, 0)
            kept = Kept(LIVE, due_ms, hash_of(message.key), message.timestamp_ms, message.raw)
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
        self._taken = max(self._taken, self._in_flight[-1].rank)
        taken = tuple(self._in_flight)
        return Decision(replies=(Reply(ticket, len(taken)),), effects=(Deliver(taken),))

    def _fire(self, ticket: Ticket, command: Fired) -> Decision:
        rank = max(command.rank, self.fired)
        done = [entry.offset for entry in self._in_flight if entry.rank <= rank]
        if command.rank > self.fired:  # who has taken over did not take them itself
            done += (entry.offset for entry in self.pending.peek_to(rank))
        value = rank.pack() + _OFFSET.pack(max(command.scan_from, self.scan_from))
        records = [StateRecord(key=FIRED, value=value)]
        records += (StateRecord(key=message_key(offset), value=None) for offset in done)
        return Decision(persist=tuple(records), replies=(Reply(ticket, len(done)),), is_whole=True)

    def _give_back(self) -> None:
        taken, self._in_flight = self._in_flight, []
        self.pending.add(b"".join(entry.pack() for entry in taken))

    def _cancel(self, ticket: Ticket, command: Cancel) -> Decision:
        """What is being delivered already cannot be cancelled: it may be in the topic."""
        records, replies = [], []
        for offset in dict.fromkeys(command.offsets):
            entry = self.pending.find(offset)
            if entry is not None:
                kept = Kept(CANCELLED, entry.due_ms, entry.key_hash, 0, b"")
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
                self._note(key, value)

    def apply(self, record: StateRecord, producer_id: int) -> None:
        raise NotImplementedError("records of this machine have a place in the log: see apply_batch")

    def _keep(self, entries: bytes) -> None:
        states = entries[RANK_BYTES::32]
        if not states.count(CANCELLED):
            self.pending.add(entries)
            return
        for at in range(0, len(entries), 32):
            entry = entries[at : at + 32]
            if entry[RANK_BYTES] == LIVE:
                self.pending.add(entry)
            else:
                self._apply_cancelled(entry)

    def _apply_cancelled(self, entry: bytes) -> None:
        self.cancelled_count += 1
        rank = rank_at(entry)
        # One whose message the log has no more is remembered all the same, until its record can go.
        if not self.pending.cancel(rank.offset) and rank > self.fired:
            self.pending.add(entry)

    def _note(self, key: bytes, value: bytes) -> None:
        if key == FIRED:
            self._apply_fired(rank_at(value), *_OFFSET.unpack_from(value, RANK_BYTES))
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

    def _apply_fired(self, rank: Rank, scan_from: int) -> None:
        self.scan_from = scan_from
        if rank <= self.fired:
            return
        self.fired = rank
        done = [entry for entry in self._in_flight if entry.rank <= rank]
        self._in_flight = self._in_flight[len(done) :]
        done += self.pending.pop_to(rank)
        self._taken = max(self._taken, rank)
        self.delivered_count += sum(entry.is_live for entry in done)
