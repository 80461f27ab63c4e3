"""Commands, replies and effects of the delivery state machine of a partition.

`group` is the id of a share group, or the name of a queue; `holder` names the consumer that holds messages in flight.
"""

from enum import Enum
from typing import Final, NamedTuple

from penstock.foundation.decision import ProducerKey
from penstock.queues.settings import DEFAULTS, DeliverySettings

UNKNOWN: Final = -1
BYTES_MAX: Final = 1 << 62
"""Value of `max_bytes` (as in Acquire) that means no limit."""


class Destination(NamedTuple):
    """The partition that a message is moved to."""

    topic_id: bytes
    partition: int


# -- delivering


class Fresh(NamedTuple):
    """One message, or several consecutive ones, that the share group has not delivered yet, as read from the log."""

    offset: int
    due_ms: int = 0
    """The earliest delivery time; 0 if the message has no delay."""
    size: int = 0
    group: str = ""
    """The message group; empty unless the queue is FIFO."""
    run: int = 1
    """Number of consecutive messages from `offset` on. More than 1 only for a batch that is not decoded, because
    delays and message groups are not needed; `size` is then the average size of the batch's messages."""


class Acquire(NamedTuple):
    """Acquires messages for a consumer: first messages that became available again, then fresh messages. The reply
    is a tuple of Acquired. If the in-flight limit is reached, raises OverLimit; in a FIFO queue, the reply is ().
    A new share group begins at `fresh_from`."""

    group: str
    holder: str
    max_messages: int
    visibility_ms: int
    fresh: tuple[Fresh, ...] = ()
    """Messages from the share group's end offset (first offset never delivered) on, in order; may have gaps."""
    fresh_end: int = UNKNOWN
    """The share group's end offset (first offset never delivered) once all of `fresh` is processed. UNKNOWN: the
    offset after the last message in `fresh`."""
    fresh_from: int = UNKNOWN
    """The offset at which reading of `fresh` began. If it is above the share group's end offset (first offset
    never delivered), messages in between are missing, and `fresh` is ignored."""
    max_bytes: int = BYTES_MAX
    """Maximum total bytes of never-delivered messages (`fresh`). The first message is delivered even if larger."""
    whole_ranges: bool = False
    """Whether to deliver whole delivery ranges and all of `fresh`, even if these are more than max_messages; never
    more than the in-flight limit allows."""
    has_more: bool = False
    """Whether the log has messages after `fresh` that may be due before the delayed messages in `fresh`. If all of
    `fresh` is delayed, True stores them as delivery ranges, and the share group's end offset moves past them.
    False stores nothing, and the next Acquire must contain them again."""
    repeat: bool = False
    """Whether to redeliver this consumer's in-flight messages, with a new deadline (AWS: ReceiveRequestAttemptId)."""
    settings: DeliverySettings = DEFAULTS


class Reschedule(NamedTuple):
    """Command: adds `by_ms` to all visibility timeouts and delays that have not expired, after the wall clock was
    stepped.

    One command changes a limited number of them. The reply is the next Reschedule to submit, or None when done. If
    `by_ms` is negative, the caller must first set back the time that it passes to the state machine, so that no
    deadline expires before it is shifted.
    """

    by_ms: int
    group: str = ""
    """The share group to continue with; if empty, starts with the first share group."""
    first: int = 0
    """The offset to continue from in share group `group`: the first delivery range that is not changed yet."""


class Acquired(NamedTuple):
    """Consecutive messages that were delivered to one consumer."""

    first: int
    last: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used
    """Number of deliveries of each message, including this delivery."""
    first_received_ms: int
    due_ms: int
    """When the visibility timeout ends."""
    is_repeat: bool = False
    """Whether this consumer already had the messages in flight: see Acquire.repeat."""


class Claim(NamedTuple):
    """Acquires those messages at the given offsets that are available. The reply is Claimed.

    Messages that the consumer already has in flight get a new deadline. A message group is not available while
    another consumer holds messages of it. Changes at most CLAIMED_MAX ranges: repeat it for offsets above `reached`.
    """

    group: str
    holder: str
    ranges: tuple[tuple[int, int], ...]
    """First and last offset of each claimed range; sorted, not overlapping."""
    visibility_ms: int
    fresh: tuple[Fresh, ...] = ()
    """Messages from the share group's end offset (first offset never delivered) on, in order. Those before the
    last claimed message that are not claimed become available to all consumers."""
    fresh_end: int = UNKNOWN
    fresh_from: int = UNKNOWN
    settings: DeliverySettings = DEFAULTS


class Claimed(NamedTuple):
    taken: tuple[Acquired, ...]
    reached: int
    """The last offset that was processed: a requested offset up to here that is not in `taken` was not available."""


# -- acknowledging


class AckType(Enum):
    """What an acknowledgement does with its messages. After the visibility timeout has expired, types documented
    as "only while in flight" are refused with NotInFlight."""

    DONE = "done"
    """Finishes the messages; also after the deadline, unless another consumer has acquired them."""
    RELEASE = "release"
    """Makes the messages available at due_ms (0: now) and invalidates the receipt. Only while in flight."""
    REJECT = "reject"
    """Sends the messages to the dead-letter queue; without such a queue, finishes them. Only while in flight."""
    RENEW = "renew"
    """Changes the end of the visibility timeout to due_ms; if that is in the past, the messages are available at
    once. Only while in flight."""
    UNDO = "undo"
    """Makes the messages available and does not count the delivery."""
    MOVE = "move"
    """Moves the messages to `destination`, for move tasks."""
    DELETE = "delete"
    """Finishes the messages, only while in flight (else NotInFlight). For share groups and FIFO queues."""
    CHANGE = "change"
    """Sets the deadline to due_ms; if that is in the past, the message is available. Accepts any receipt of the
    message, even an expired or older one: ChangeMessageVisibility of a standard queue."""


class Acknowledgement(NamedTuple):
    """Acknowledges all unfinished messages from `first` to `last`; `holder` must hold all of them."""

    first: int
    last: int
    holder: str
    ack_type: AckType
    due_ms: int = 0
    destination: Destination | None = None
    """Where MOVE moves the messages; None for other types."""


class Acknowledge(NamedTuple):
    """Applies acknowledgements independently of each other. The reply is a tuple with None or an error for each.

    NotHeld: another consumer has the message. AlreadyFinished: it is finished. NotInFlight: its deadline has passed.
    """

    group: str
    items: tuple[Acknowledgement, ...]
    settings: DeliverySettings = DEFAULTS
    """The delivery settings, which name the dead-letter queue for REJECT."""


class ReleaseHolder(NamedTuple):
    """Releases the messages that a consumer has in flight. The reply is the number of messages released.

    One command releases a limited number of ranges: repeat it until the reply is 0.
    """

    group: str
    holder: str
    is_undone: bool = False
    """Whether the deliveries are undone: they do not count towards the limit of deliveries."""


# -- whole groups; the reply is None


class Purge(NamedTuple):
    """Command: finishes all messages below `end`, in flight or not, except messages that are being moved to another
    partition.

    A queue or share group that has no delivery state yet starts at `end`.
    """

    group: str
    end: int
    forgets_ids: bool = False
    """FIFO queues: whether deduplication ids of the purged messages can be used again (QueueMachine.purged_to)."""


class Trimmed(NamedTuple):
    """Reports that the log was trimmed: messages below `start` no longer exist."""

    group: str
    start: int


class SetPosition(NamedTuple):
    """Sets the position of a share group: messages from `end` on become available, messages below it are finished."""

    group: str
    end: int


class DeleteGroup(NamedTuple):
    """Deletes the delivery state of a share group."""

    group: str


# -- moving messages to other partitions


class SetProducer(NamedTuple):
    """Command: sets the producer id with which messages are copied to other partitions, as the effect NeedProducer
    requested. Ignored if one is set already. The reply is None."""

    producer_id: int


class MoveDone(NamedTuple):
    """Command: reports that the copy of a message is committed; made by CopyMessage.done. The reply is None.

    Submit it until it succeeds. It is ignored unless the move of this copy (producer and sequence) is still in
    progress.
    """

    group: str
    offset: int
    destination: Destination
    producer: ProducerKey
    sequence: int


class MoveFailed(NamedTuple):
    """Command: reports that the destination of a copy does not exist any more or refuses it; made by
    CopyMessage.failed. The reply is None.

    The message becomes available at due_ms and keeps its delivery count.
    """

    group: str
    offset: int
    destination: Destination
    producer: ProducerKey
    sequence: int
    due_ms: int


class NeedProducer(NamedTuple):
    """Effect: the broker reserves a producer id, with which this partition copies messages to other partitions, and
    submits it with SetProducer. Sent again until that is done."""


class CopyMessage(NamedTuple):
    """Effect: the broker appends a copy of a message to the destination, with this producer id and sequence.

    It retries until that succeeds; a duplicate counts as success. Then it submits MoveDone. A new leader repeats this
    effect.
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
    """Number of messages, by state, below the share group's end offset (first offset never delivered). Later messages
    were never delivered: the caller counts them in the log."""

    available: int
    in_flight: int
    delayed: int
    moving: int
