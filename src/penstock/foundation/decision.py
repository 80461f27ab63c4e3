"""The state machine interface (decide, then apply), and the Decision that the I/O code carries out in order.

First the records are persisted, then applied; when they are committed, the replies are sent and the effects are done.
Durable state changes only in `apply` and `end_transaction`, so that recovery, failover and normal operation run the
same code. Other state (waiting requests, heartbeat times) may change in `decide`, and must be valid whether or not
the records of that decision could be persisted: if they could not, nothing is applied, and waiting clients retry.
"""

from typing import Any, Final, NamedTuple, Protocol

NO_PRODUCER: Final = -1
Ticket = int
"""Identifies a request that waits for a reply; the I/O code knows its client."""
NO_TICKET: Final[Ticket] = -1
"""The ticket of a command without a reply."""


class ProducerKey(NamedTuple):
    """A producer id and epoch."""

    producer_id: int
    epoch: int


class Ask(NamedTuple):
    """A command that is a client's request as received; the reply is its response."""

    body: Any
    version: int
    client_id: str
    client_host: str


class StateRecord:
    """One immutable change of state: key and value of a record in a compacted log; the value None is a tombstone."""

    __slots__ = ("key", "parsed", "value")

    def __init__(self, *, key: bytes, value: bytes | None, parsed: tuple[Any, Any] | None = None) -> None:
        self.key = key
        self.value = value
        self.parsed = parsed
        """The decoded key and value, if known, so that the writer's own records need not be decoded."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StateRecord) and (self.key, self.value) == (other.key, other.value)

    def __hash__(self) -> int:
        return hash((self.key, self.value))

    def __repr__(self) -> str:
        return f"StateRecord(key={self.key!r}, value={self.value!r})"


class Reply(NamedTuple):
    ticket: Ticket
    value: Any


class Decision(NamedTuple):
    """Records to persist, then replies to send, then effects to carry out."""

    persist: tuple[StateRecord, ...] = ()
    transaction: ProducerKey | None = None
    """Set if the records take effect only when this producer's transaction commits."""
    replies: tuple[Reply, ...] = ()
    effects: tuple[Any, ...] = ()
    is_whole: bool = False
    """Set if the records are atomic: they are persisted as one batch, however large, or not at all."""
    must_lead: bool = False
    """Set if the replies require that no other broker has become leader: they wait until that is confirmed."""


NOTHING: Final = Decision()


class RepeatedDecision(Protocol):
    """A cached decision that a state machine makes repeatedly with different values, such as offset commits. Pure.

    It replaces a command, `decide` and `apply`, and must have the same result.
    """

    @property
    def count(self) -> int:
        """How many records it persists."""

    def decide(self, said: Any, now_ms: int) -> bytes | None:
        """Returns the encoded records of a batch with this timestamp; None if the state machine must decide."""

    def apply(self, said: Any, now_ms: int) -> None:
        """Applies the records after they were persisted."""


class StateMachine(Protocol):
    """Pure: no sockets, files, clocks or randomness. Time is passed as `now_ms`."""

    def decide(self, ticket: Ticket, command: Any, now_ms: int) -> Decision:
        """Handles a command. A reply that must wait comes with a later decision.

        A PenstockError that it raises is the reply, and nothing has changed.
        """

    def wake(self, now_ms: int) -> Decision:
        """Does the work that is due by now (expiry, timeouts)."""

    @property
    def wake_at_ms(self) -> int | None:
        """When `wake` has work to do, if nothing else happens; None: never."""

    def apply(self, record: StateRecord, producer_id: int) -> None:
        """Applies a record that was persisted or is replayed, in a producer's transaction or none (NO_PRODUCER)."""

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Commits or aborts the records that a producer has persisted in its transaction."""

    def loaded(self, now_ms: int) -> None:
        """Called when all records are replayed: this replica is the leader and decides from now on."""


class BatchedMachine(StateMachine, Protocol):
    """A state machine that applies whole batches: it needs log positions, or has too many records for one by one."""

    def apply_batch(self, batch: Any, header: Any) -> None:
        """Like `apply`, for all records of a batch."""
