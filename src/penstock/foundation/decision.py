"""The state machine interface (decide, then apply), and the Decision that the I/O code carries out in order.

The records of a decision are persisted, then applied; once they are committed, replies are sent and effects carried
out. Durable state changes only in `apply` and `end_transaction`, so that recovery, failover and normal operation run
the same code. Other state (waiting requests, heartbeat times) may change in `decide`, and must be valid even if the
records of that decision could not be persisted: then nothing is applied, and waiting clients retry.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

NO_PRODUCER: Final = -1
Ticket = int
"""Identifies a request that waits for a reply; the I/O code maps it to the client."""
NO_TICKET: Final[Ticket] = -1
"""The ticket of a command that needs no reply."""


class ProducerKey(NamedTuple):
    """A producer id and epoch."""

    producer_id: int
    epoch: int


class ClientRequest(NamedTuple):
    """A command that wraps a client's request as received; its reply is the response to that request."""

    body: Any
    version: int
    client_id: str
    client_host: str
    sees: Callable[[str], bool] | None = None
    """Whether the client may know a topic; None if it may know all."""


class StateRecord:
    """One immutable state change: key and value of a record in a compacted log. A value of None is a tombstone."""

    __slots__ = ("key", "parsed", "value")

    def __init__(self, *, key: bytes, value: bytes | None, parsed: tuple[Any, Any] | None = None) -> None:
        self.key = key
        self.value = value
        self.parsed = parsed
        """The decoded key and value, or None; saves decoding records that this process has just built."""

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
    """What a state machine decides: records to persist, then replies to send, then side effects to carry out."""

    persist: tuple[StateRecord, ...] = ()
    transaction: ProducerKey | None = None
    """If set, the records are part of this producer's transaction and take effect only when it commits."""
    replies: tuple[Reply, ...] = ()
    effects: tuple[Any, ...] = ()
    is_atomic: bool = False
    """Whether the records are written as one batch, all or none. If False, they may be split into several batches."""
    must_lead: bool = False
    """Whether the replies must wait until it is confirmed that this broker is still the leader."""


NOTHING: Final = Decision()


class RepeatedDecision(Protocol):
    """Fast path for a decision that a state machine repeats with different values, such as offset commits. Pure.

    Its `decide` and `apply` replace those of the state machine, and must have the same result.
    """

    @property
    def count(self) -> int:
        """Number of records that the decision persists."""

    def decide(self, values: Any, now_ms: int) -> bytes | None:
        """Returns the encoded records with new `values`, such as the offsets of a commit. Returns None if the
        command must be decided by the state machine instead."""

    def apply(self, values: Any, now_ms: int) -> None:
        """Applies the records that `decide` has returned for the same `values`, after they were persisted."""


class StateMachine(Protocol):
    """Interface of all state machines. Pure: no sockets, files, clocks or randomness. Time is passed as `now_ms`."""

    def decide(self, ticket: Ticket, command: Any, now_ms: int) -> Decision:
        """Handles a command and returns the decision. A reply that must wait is part of a later decision.

        If it raises a PenstockError, the error is the reply, and nothing has changed.
        """

    def wake(self, now_ms: int) -> Decision:
        """Decides on work that is due at `now_ms` (expiry, timeouts)."""

    @property
    def wake_at_ms(self) -> int | None:
        """When `wake` must be called next, unless a command changes the time; None if it need not be called."""

    def apply(self, record: StateRecord, producer_id: int) -> None:
        """Applies a persisted or replayed record. `producer_id`: whose transaction it is part of, or NO_PRODUCER."""

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Commits or aborts the records that were applied in a producer's transaction."""

    def loaded(self, now_ms: int) -> None:
        """Called after all records were replayed: this replica is the leader, and `decide` may be called."""


class BatchedMachine(StateMachine, Protocol):
    """A state machine that applies whole batches, because it needs log positions or has very many records."""

    def apply_batch(self, batch: Any, header: Any) -> None:
        """Applies all records of a persisted or replayed batch, in place of one `apply` per record."""
