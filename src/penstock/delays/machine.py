"""The state machine of the delayed messages of one partition: which are pending, and which were delivered. Pure.

Its records are in the companion log, a second log of the partition: one record per message, with the message's offset
in the topic as key. Deliveries are recorded as a single rank (due time and offset): messages are delivered in the
order of ranks, so all messages up to that rank are delivered. To keep that true, a message that arrives after its due
time gets a rank after all messages already taken for delivery. If that rank is far in the future, because the clock
was set back, the message keeps its due time in a new generation, which has its own delivered rank.

The rank is recorded after the messages are appended to the topic, with an offset from which a new leader scans the
topic for messages that were appended but not recorded. Messages are appended only once all earlier records of the
companion log are committed, so a leader that finds delivered messages in the topic also has their records.
"""

import struct
from typing import Any, Final

from penstock.delays.commands import Began, Begin, Cancel, ConfirmDelivered, Copy, Deliver, Release, Rewind, Take
from penstock.delays.entries import (
    BEFORE_ALL,
    BEGAN,
    CANCELLED,
    COPIED,
    DELIVERED,
    ENTRY_BYTES,
    GENERATION_MAX,
    MESSAGE,
    Entry,
    Rank,
    Ranks,
    StoredMessage,
    hash_of,
    last_ranks,
    message_key,
    read_entry,
)
from penstock.delays.pending import RUN_ENTRIES, Pending
from penstock.delays.run_storage import RunStorage
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import NOTHING, Decision, Reply, StateRecord, Ticket
from penstock.foundation.errors import PenstockError
from penstock.records import kernel
from penstock.records.batch import BatchHeader
from penstock.records.layout import Buffer

_OFFSET: Final = struct.Struct(">q")
_COPIED: Final = struct.Struct(">qB")
_DELIVERED: Final = struct.Struct(">Bqq")
UNKNOWN: Final = -1
_STATE_AT: Final = 16
_IS_CANCELLED: Final = bytes(state & CANCELLED for state in range(256))
LATE_MAX_MS: Final = 1000
"""Maximum time, in ms, by which a message is postponed so that messages are delivered in order of due time. A longer
wait means that the clock was set back: the message then starts a new generation, with its own order."""


class DamagedDelays(PenstockError):
    """A record of delayed messages cannot be read: it is damaged, or was written by a later version."""

    code = ErrorCode.CORRUPT_MESSAGE


class DelayMachine:
    """State machine of delayed messages, run by replication/runtime.py. It has no clock: commands carry the time."""

    def __init__(self, storage: RunStorage, run_entries: int = RUN_ENTRIES) -> None:
        self.pending: Final = Pending(storage, run_entries)
        self.since = UNKNOWN
        """First offset of the topic at which records can be delayed; UNKNOWN until the Begin command is applied."""
        self.copied_to = UNKNOWN
        """All delayed messages of the topic below this offset are copied to the companion log, unless aborted."""
        self.delivered_ranks: Final[Ranks] = {}
        """Rank (due time, offset) up to which all messages of a generation are delivered or cancelled, by
        generation number. The number grows when the clock is set back."""
        self._generation = 0
        """The generation of new messages: a number that grows when the clock is set back (see module docstring)."""
        self.scan_from = 0
        """The offset of the topic from which a new leader searches for deliveries that were not recorded."""
        self._taken: Ranks = {}
        """By generation (see `_generation`): the highest rank (due time, offset) that was taken for delivery."""
        self._in_flight: list[Entry] = []
        self.delivered_count = 0
        self.cancelled_count = 0
        """Number of cancellations applied to this state machine, including those loaded from the companion log."""

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def pending_count(self) -> int:
        """Number of pending messages, without cancelled messages."""
        return self.pending.count + sum(entry.is_live for entry in self._in_flight)

    @property
    def wake_at_ms(self) -> int | None:
        return None

    def wake(self, now_ms: int) -> Decision:
        return NOTHING

    def loaded(self, now_ms: int) -> None:
        self._advance_taken(self.delivered_ranks)

    def _advance_taken(self, ranks: Ranks) -> None:
        for generation, rank in ranks.items():
            self._taken[generation] = max(self._taken.get(generation, BEFORE_ALL), rank)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Does nothing: delayed-message state is not written in transactions."""

    # -- deciding

    def decide(self, ticket: Ticket, command: Any, now_ms: int) -> Decision:
        match command:
            case Copy():
                return self._copy(ticket, command)
            case Take():
                return self._take(ticket, command)
            case ConfirmDelivered():
                return self._confirm_delivered(ticket, command)
            case Release():
                self._release()
                return Decision(replies=(Reply(ticket, None),))
            case Cancel():
                return self._cancel(ticket, command)
            case Begin():
                return self._begin(ticket, command)
            case Rewind():
                record = StateRecord(key=COPIED, value=_COPIED.pack(command.end, 1))
                return Decision(persist=(record,), replies=(Reply(ticket, None),))
        raise TypeError(f"unknown command: {command!r}")

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
            # After all that were taken: their recorded rank means that all before it are delivered.
            taken_ms = self._taken.get(generation, BEFORE_ALL).due_ms
            if message.due_ms < taken_ms > command.now_ms + LATE_MAX_MS and generation < GENERATION_MAX:
                generation, taken_ms = generation + 1, 0
            due_ms = max(message.due_ms, taken_ms, 0)
            stored = StoredMessage(generation << 1, due_ms, hash_of(message.key), message.timestamp_ms, message.raw)
            records.append(StateRecord(key=message_key(message.offset), value=stored.pack()))
        if command.copied_to > self.copied_to:
            records.append(StateRecord(key=COPIED, value=_COPIED.pack(command.copied_to, 0)))
        return Decision(persist=tuple(records), replies=(Reply(ticket, None),), is_atomic=True)

    def _take(self, ticket: Ticket, command: Take) -> Decision:
        if self._in_flight:
            return Decision(replies=(Reply(ticket, 0),))
        self._in_flight = self.pending.pop_to(Rank(command.now_ms, 2**63 - 1), command.count_max)
        if not self._in_flight:
            return Decision(replies=(Reply(ticket, 0),))
        self._advance_taken(last_ranks(self._in_flight))
        taken = tuple(self._in_flight)
        return Decision(replies=(Reply(ticket, len(taken)),), effects=(Deliver(taken),))

    def _confirm_delivered(self, ticket: Ticket, command: ConfirmDelivered) -> Decision:
        offsets = frozenset(command.offsets)
        done = [entry for entry in self._in_flight if entry.offset in offsets]
        if len(done) < len(offsets):  # the previous leader took them
            found = (self.pending.find(offset) for offset in offsets.difference(entry.offset for entry in done))
            done += (entry for entry in found if entry is not None)
        ranks = last_ranks(done)
        ranks = {
            one: max(ranks.get(one, BEFORE_ALL), self.delivered_ranks.get(one, BEFORE_ALL))
            for one in {*ranks, *self.delivered_ranks}
        }
        value = _OFFSET.pack(max(command.scan_from, self.scan_from))
        value += b"".join(_DELIVERED.pack(generation, *rank) for generation, rank in sorted(ranks.items()))
        records = [StateRecord(key=DELIVERED, value=value)]
        records += (StateRecord(key=message_key(entry.offset), value=None) for entry in done)
        return Decision(persist=tuple(records), replies=(Reply(ticket, len(done)),), is_atomic=True)

    def _release(self) -> None:
        taken, self._in_flight = self._in_flight, []
        self.pending.put_back(taken)

    def _cancel(self, ticket: Ticket, command: Cancel) -> Decision:
        """Cancels pending messages; not messages that are being delivered, which may already be in the topic."""
        records, replies = [], []
        for offset in dict.fromkeys(command.offsets):
            entry = self.pending.find(offset)
            if entry is not None:
                stored = StoredMessage(entry.state | CANCELLED, entry.due_ms, entry.key_hash, 0, b"")
                records.append(StateRecord(key=message_key(offset), value=stored.pack()))
            replies.append((offset, entry is not None))
        return Decision(persist=tuple(records), replies=(Reply(ticket, dict(replies)),), must_lead=True)

    # -- applying

    def apply_batch(self, batch: Buffer, header: BatchHeader) -> None:
        """Applies all records of a batch of the companion log, a second log that stores delayed messages."""
        entries, others = kernel.active.pack_entries(batch, MESSAGE)
        if entries:
            self._apply_entries(entries)
        for key, value in others:
            if value is not None:
                try:
                    self._apply_position(key, value)
                except struct.error as error:
                    raise DamagedDelays(f"record {key.hex()} of delayed messages cannot be read: {error}") from error

    def apply(self, record: StateRecord, producer_id: int) -> None:
        raise NotImplementedError("records of this state machine need their log offset: use apply_batch")

    def _apply_entries(self, entries: bytes) -> None:
        states = entries[_STATE_AT::ENTRY_BYTES]
        self._generation = max(self._generation, max(states) >> 1)
        if not states.translate(_IS_CANCELLED).count(1):
            self.pending.add(entries)
            return
        for at in range(0, len(entries), ENTRY_BYTES):
            entry = read_entry(entries, at)
            if entry.is_live:
                self.pending.put_back((entry,))
            else:
                self._apply_cancelled(entry)

    def _apply_cancelled(self, entry: Entry) -> None:
        self.cancelled_count += 1
        # Keep an entry even if compaction has removed its message, until its record can be deleted.
        if not self.pending.cancel(entry.offset) and not self._is_done(entry):
            self.pending.put_back((entry,))

    def _is_done(self, entry: Entry) -> bool:
        return entry.rank <= self.delivered_ranks.get(entry.generation, BEFORE_ALL)

    def _apply_position(self, key: bytes, value: bytes) -> None:
        if key == DELIVERED:
            ranks = {
                one: Rank(due_ms, offset) for one, due_ms, offset in _DELIVERED.iter_unpack(value[_OFFSET.size :])
            }
            self._apply_delivered(ranks, *_OFFSET.unpack_from(value))
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

    def _apply_delivered(self, ranks: Ranks, scan_from: int) -> None:
        self.scan_from = scan_from
        newer = {one: rank for one, rank in ranks.items() if rank > self.delivered_ranks.get(one, BEFORE_ALL)}
        if not newer:
            return
        self.delivered_ranks.update(newer)
        self._advance_taken(newer)
        self._generation = max(self._generation, *ranks)
        seen = [*self._in_flight, *self.pending.pop_to(max(newer.values()))]
        taken = len(self._in_flight)
        self._in_flight = [entry for entry in self._in_flight if not self._is_done(entry)]
        self.pending.put_back(entry for entry in seen[taken:] if not self._is_done(entry))
        self.delivered_count += sum(entry.is_live and self._is_done(entry) for entry in seen)
