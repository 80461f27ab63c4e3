"""Commands, replies and effects of the delivery state machine of a partition.

Every command names its group: the id of a share group, which is the name of a queue.
"""

from enum import Enum
from typing import Final, NamedTuple

from penstock.foundation.decision import ProducerKey
from penstock.queues.settings import DEFAULTS, DeliverySettings

UNKNOWN: Final = -1
BYTES_MAX: Final = 1 << 62
"""No bound on bytes."""


class Destination(NamedTuple):
    """A partition that messages are moved to."""

    topic_id: bytes
    partition: int


# -- delivering


class Fresh(NamedTuple):
    """One message at or above the group's end, as read from the log; or several consecutive ones."""

    offset: int
    due_ms: int = 0
    """The earliest delivery time; 0: no delay."""
    size: int = 0
    group: str = ""
    """The message group, in a FIFO queue."""
    run: int = 1
    """Number of consecutive messages from `offset` on, each of `size` bytes, of a batch that is not decompressed.
    More than one only where messages have no delays and no message groups."""


class Acquire(NamedTuple):
    """Acquires messages for a holder. The reply is a tuple of Acquired. Raises OverLimit (not in a FIFO queue).

    Messages that became available again come first, then fresh ones. A group without state begins at `fresh_from`.
    """

    group: str
    holder: str
    max_messages: int
    visibility_ms: int
    fresh: tuple[Fresh, ...] = ()
    """Messages from the group's end on, in order. Gaps are control records and records of aborted transactions."""
    fresh_end: int = UNKNOWN
    """The group's end once all of `fresh` is processed. UNKNOWN: the offset after the last fresh message."""
    fresh_from: int = UNKNOWN
    """The offset at which `fresh` was read. Above the group's end, `fresh` is ignored: it would skip messages."""
    max_bytes: int = BYTES_MAX
    """The most bytes of fresh messages. The first message is delivered even if it is larger."""
    whole_ranges: bool = False
    """Delivers whole ranges and all of `fresh`: possibly more than max_messages, never more than may be in flight."""
    has_more: bool = False
    """Whether the log has more messages after `fresh`, which may be due earlier: delayed ones become delivery ranges.

    Otherwise delayed messages at the end of the log stay above the group's end, where they need no state.
    """
    repeat: bool = False
    """Delivers again what this holder has in flight, with a new deadline (AWS: ReceiveRequestAttemptId)."""
    settings: DeliverySettings = DEFAULTS


class Reschedule(NamedTuple):
    """Shifts the deadlines that have not expired, after the clock was set. The reply is the next command, or None.

    If the clock was set back, submit it when the state machine already gets the new time.
    """

    by_ms: int
    group: str = ""
    """The group to continue with; empty: the first."""
    first: int = 0
    """The offset to continue from."""


class Acquired(NamedTuple):
    """Consecutive messages that were delivered to one holder."""

    first: int
    last: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used
    """Deliveries, this one included."""
    first_received_ms: int
    due_ms: int
    """When the visibility timeout ends."""
    is_repeat: bool = False
    """Whether they were in flight with this holder before: see Acquire.repeat."""


class Claim(NamedTuple):
    """Acquires messages by their offsets, as far as they are available. The reply is Claimed.

    Messages that the holder has in flight get a new deadline. A message group of which another holder has messages in
    flight is not available. One command claims at most one batch: repeat it for the offsets after `reached`.
    """

    group: str
    holder: str
    ranges: tuple[tuple[int, int], ...]
    """First and last offsets, in order, not overlapping."""
    visibility_ms: int
    fresh: tuple[Fresh, ...] = ()
    """As in Acquire. Fresh messages before the last claimed one become available to all."""
    fresh_end: int = UNKNOWN
    fresh_from: int = UNKNOWN
    settings: DeliverySettings = DEFAULTS


class Claimed(NamedTuple):
    """The result of a Claim."""

    taken: tuple[Acquired, ...]
    reached: int
    """The last offset that was decided on: what was claimed up to here and is not in `taken` is not available."""


# -- acknowledging


class AckType(Enum):
    """What an acknowledgement does with the messages."""

    DONE = "done"
    """Finishes them; also after the deadline, unless another holder has acquired them."""
    RELEASE = "release"
    """Makes them available from due_ms on (0: now) and the receipt invalid. Only while in flight."""
    REJECT = "reject"
    """Sends them to the dead-letter queue, or finishes them without one. Only while in flight."""
    RENEW = "renew"
    """Sets the deadline to due_ms; in the past: available, and the receipt stays valid. Only while in flight."""
    UNDO = "undo"
    """Makes them available and does not count the delivery."""
    MOVE = "move"
    """Moves them to a named destination, as move tasks do."""
    DELETE = "delete"
    """Finishes them, only while in flight: share groups, and DeleteMessage of a FIFO queue."""
    CHANGE = "change"
    """Sets the deadline to due_ms; in the past: available. Takes any receipt of the message, also after the deadline
    or after another receive: ChangeMessageVisibility of a standard queue."""


class Acknowledgement(NamedTuple):
    """One acknowledgement. The holder must hold every unfinished message from first to last."""

    first: int
    last: int
    holder: str
    ack_type: AckType
    due_ms: int = 0
    destination: Destination | None = None
    """Required by MOVE."""


class Acknowledge(NamedTuple):
    """Applies acknowledgements independently of each other. The reply is a tuple with None or an error for each.

    NotHeld: another holder has the message. AlreadyFinished: it is finished. NotInFlight: its deadline has passed.
    """

    group: str
    items: tuple[Acknowledgement, ...]
    settings: DeliverySettings = DEFAULTS
    """Has the dead-letter queue of REJECT."""


class ReleaseHolder(NamedTuple):
    """Releases the messages that a holder has in flight. The reply is their number.

    One command releases at most one batch: repeat it until the reply is 0.
    """

    group: str
    holder: str
    is_undone: bool = False
    """Whether those deliveries are not counted."""


# -- whole groups; the reply is None


class Purge(NamedTuple):
    """Finishes all messages below an offset, in flight or not, except those that are being moved elsewhere.

    A group without state begins at that offset.
    """

    group: str
    end: int
    forgets_ids: bool = False
    """FIFO queues: whether their deduplication ids can be used again (QueueMachine.purged_to)."""


class Trimmed(NamedTuple):
    """The log was trimmed: its messages below an offset are gone."""

    group: str
    start: int


class SetPosition(NamedTuple):
    """Sets the position of a group: messages from this offset on are available, those below are finished."""

    group: str
    end: int


class DeleteGroup(NamedTuple):
    """The group is deleted."""

    group: str


# -- moving messages to other partitions


class SetProducer(NamedTuple):
    """Sets a new producer id, as NeedProducer asks for. Ignored if there is one. The reply is None."""

    producer_id: int


class MoveDone(NamedTuple):
    """The copy of a message is committed (see CopyMessage.done). Submit it until it succeeds. The reply is None.

    Ignored if the move was abandoned, or belongs to an earlier leader.
    """

    group: str
    offset: int
    destination: Destination
    producer: ProducerKey
    sequence: int


class MoveFailed(NamedTuple):
    """The destination does not exist any more, or refuses the message (see CopyMessage.failed). The reply is None.

    The message is available again at due_ms, with its delivery count.
    """

    group: str
    offset: int
    destination: Destination
    producer: ProducerKey
    sequence: int
    due_ms: int


class NeedProducer(NamedTuple):
    """Effect: reserve a producer id for this partition and submit SetProducer. May be repeated."""


class CopyMessage(NamedTuple):
    """Effect: append a copy to the destination with this producer id, epoch and sequence; retry until it succeeds.

    A duplicate is a success. Then submit MoveDone. A new leader repeats the effect.
    """

    group: str
    offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used
    first_received_ms: int
    destination: Destination
    producer: ProducerKey
    sequence: int

    def done(self) -> MoveDone:
        return MoveDone(self.group, self.offset, self.destination, self.producer, self.sequence)

    def failed(self, due_ms: int) -> MoveFailed:
        return MoveFailed(self.group, self.offset, self.destination, self.producer, self.sequence, due_ms)


# -- queries, which write nothing


class Counts(NamedTuple):
    """Number of messages below the group's end by state. Messages above it are counted by the log."""

    available: int
    in_flight: int
    delayed: int
    moving: int
