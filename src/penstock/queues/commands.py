"""What the machine of a partition's delivery state is asked, what it answers, and what it wants done.

Every command names its group: a share group's id, which is a queue's name.
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
    """A message at or above the group's end, as the shell has read it from the log; or several in a row."""

    offset: int
    due_ms: int = 0
    """Not to be delivered before; 0: at any time."""
    size: int = 0
    group: str = ""
    """The message group, in a FIFO queue."""
    run: int = 1
    """How many messages from `offset` on, each of `size` bytes: batches that stay closed are not counted one by one.
    More than one only where messages have no due times and no message groups."""


class Acquire(NamedTuple):
    """Take messages in hand. The reply is a tuple of Acquired. Raises OverLimit (not in a FIFO queue).

    What was available before comes first, then fresh messages. A group that is not known yet begins where the
    reading of fresh messages began.
    """

    group: str
    holder: str
    max_messages: int
    visibility_ms: int
    fresh: tuple[Fresh, ...] = ()
    """Consecutive messages from the group's end on; between them is only what is no message (markers, aborted)."""
    fresh_end: int = UNKNOWN
    """How far was read: once all of fresh is looked at, the group's end is here. UNKNOWN: behind the last of them."""
    fresh_from: int = UNKNOWN
    """Where the reading began. If the group's end is not that far, fresh is left aside: it would skip something."""
    max_bytes: int = BYTES_MAX
    """Of fresh messages; the first one is given however large."""
    whole_ranges: bool = False
    """Ranges are not cut, and all of fresh is given: more than max_messages, never more than may be in flight."""
    looks_on: bool = False
    """There is more behind fresh, and it may be due before these are: what is not due is set aside as delayed.

    Otherwise messages that are not due, with none behind them that is, are not looked at yet: they cost nothing.
    """
    repeat: bool = False
    """What this holder has in flight is given again, its deadline renewed (AWS: ReceiveRequestAttemptId)."""
    settings: DeliverySettings = DEFAULTS


class Reschedule(NamedTuple):
    """The clock was set: deadlines that are not over move along with it. The reply is what to go on with, or None.

    Where time goes back, the machine's own goes back with the first part: send that after the clock is changed here.
    """

    by_ms: int
    group: str = ""
    """Go on with this group, or begin with the first."""
    first: int = 0
    """Go on with messages from this offset on."""


class Acquired(NamedTuple):
    """Consecutive messages in one pair of hands."""

    first: int
    last: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used
    """Deliveries, this one included."""
    first_received_ms: int
    due_ms: int
    """Until when they are in flight."""
    is_repeat: bool = False
    """Whether the holder had them already: see Acquire.repeat."""


class Claim(NamedTuple):
    """Take in hand exactly these messages, as far as they are available: for who has examined them. Reply: Claimed.

    What the holder has already is its own for longer. Nobody gets a message of a message group that someone else has
    in hand. So much at a time as is one batch: say it again for what lies behind `reached`.
    """

    group: str
    holder: str
    ranges: tuple[tuple[int, int], ...]
    """First and last offsets, in order, apart from each other."""
    visibility_ms: int
    fresh: tuple[Fresh, ...] = ()
    """As in Acquire: those before the last that is claimed are looked at, and are available to all."""
    fresh_end: int = UNKNOWN
    fresh_from: int = UNKNOWN
    settings: DeliverySettings = DEFAULTS


class Claimed(NamedTuple):
    """What came of a Claim."""

    taken: tuple[Acquired, ...]
    reached: int
    """All that was claimed up to here is decided: what is not taken cannot be had now."""


# -- settling


class Verdict(Enum):
    """What becomes of messages that someone holds."""

    DONE = "done"
    """Finished. Honoured after the deadline too, as long as nobody else has acquired them."""
    RELEASE = "release"
    """Available to all from due_ms on (0: now); the receipt is void. Only while in flight."""
    REJECT = "reject"
    """Nobody can work it off: to the dead letters, or finished if there are none. Only while in flight."""
    RENEW = "renew"
    """In flight until due_ms; until now: available, and the receipt is good still. Only while in flight."""
    UNDO = "undo"
    """As if it had not been delivered: available, and the delivery is not counted."""
    MOVE = "move"
    """To a destination that is named, as move tasks do."""
    DELETE = "delete"
    """As DONE, but only while in flight: share groups, and DeleteMessage of a FIFO queue."""
    CHANGE = "change"
    """In flight until due_ms; until now: available. Honoured with any receipt of the message, also after the
    deadline, and if another consumer has received it since: ChangeMessageVisibility of a standard queue."""


class Item(NamedTuple):
    """One acknowledgement. All that lies between first and last and is not finished must be the holder's."""

    first: int
    last: int
    holder: str
    verdict: Verdict
    due_ms: int = 0
    destination: Destination | None = None
    """Of MOVE."""


class Settle(NamedTuple):
    """Acknowledgements, each on its own. The reply is a tuple with None or an error for each: see errors.py.

    NotHeld: someone else has it. AlreadyFinished: nobody does. NotInFlight: it is too late to extend or release it.
    """

    group: str
    items: tuple[Item, ...]
    settings: DeliverySettings = DEFAULTS
    """Where REJECT sends them."""


class GiveBack(NamedTuple):
    """A holder is gone: what it has in flight is available. The reply is how many messages that were.

    So many at a time as are one batch: say it again until the reply is 0.
    """

    group: str
    holder: str
    is_undone: bool = False
    """Whether those deliveries are not counted."""


# -- the group as a whole; the reply is None


class Purge(NamedTuple):
    """All messages below an offset are done, in flight or not; but those that are being moved away are moved.

    A group that is not known yet begins at that offset.
    """

    group: str
    end: int
    forgets_ids: bool = False
    """Whether the deduplication ids of all below are forgotten: see QueueMachine.purged_to. Of FIFO queues."""


class Trimmed(NamedTuple):
    """The log has lost what was below an offset."""

    group: str
    start: int


class SetPosition(NamedTuple):
    """The group begins here, or begins here again: all from this offset on is waiting, all below is done."""

    group: str
    end: int


class Forget(NamedTuple):
    """The group is deleted."""

    group: str


# -- moving away


class SetProducer(NamedTuple):
    """The answer to NeedProducer: an id that nobody has had. Ignored if there is one. The reply is None."""

    producer_id: int


class MoveDone(NamedTuple):
    """The copy is committed, or was found to be. `Carry.done()` makes it. The reply is None; submit it until it is.

    From a life before this one, or of a move that was given up, it means nothing.
    """

    group: str
    offset: int
    destination: Destination
    producer: ProducerKey
    sequence: int


class MoveFailed(NamedTuple):
    """The destination is gone, or will never take it. `Carry.failed()` makes it. The reply is None.

    The message is available again at due_ms, with the deliveries that it had.
    """

    group: str
    offset: int
    destination: Destination
    producer: ProducerKey
    sequence: int
    due_ms: int


class NeedProducer(NamedTuple):
    """An effect: have a producer id reserved for this partition, and SetProducer. It may be said several times."""


class Carry(NamedTuple):
    """An effect: append a copy to the destination under exactly this producer and sequence, however long it takes.

    That the destination has it already is success: then MoveDone. After another leader took over, it is said again.
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


# -- asked without the log


class Counts(NamedTuple):
    """Messages below the group's end by their state. What waits above it, the log knows."""

    available: int
    in_flight: int
    delayed: int
    moving: int
