"""Decide, then apply: what a pure state machine gives back, and a shell carries out in this order.

First the records are persisted, then applied; when they are committed, the replies go out and the effects are done.
State that must survive changes only in `apply` and `end_transaction`, so that recovery, failover and normal running
are the same code. Whatever else a machine keeps (who waits for what, when whom was heard of) may change in `decide`,
and must be right whether or not the records of that decision could be persisted: if they could not, nothing is
applied, and who waits is told to try again.
"""

from typing import Any, Final, NamedTuple, Protocol

NO_PRODUCER: Final = -1
Ticket = int
"""A request that waits for a reply; the shell knows whose it is."""
NOBODY: Final[Ticket] = -1
"""The ticket of a command that no one waits for."""


class ProducerKey(NamedTuple):
    """One life of a producer."""

    producer_id: int
    epoch: int


class Ask(NamedTuple):
    """A command that is a client's request, as it came over the wire; the reply is the response to it."""

    body: Any
    version: int
    client_id: str
    client_host: str


class StateRecord:
    """One change of state: a key of a compacted log and its value, None if it is gone. Never changed."""

    __slots__ = ("key", "parsed", "value")

    def __init__(self, *, key: bytes, value: bytes | None, parsed: tuple[Any, Any] | None = None) -> None:
        self.key = key
        self.value = value
        self.parsed = parsed
        """What key and value say, where that is known: whoever has just written them need not read them."""

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
    """What to persist, then to whom to say what, then what else to do."""

    persist: tuple[StateRecord, ...] = ()
    transaction: ProducerKey | None = None
    """Set if the records count only once this producer's transaction has committed."""
    replies: tuple[Reply, ...] = ()
    effects: tuple[Any, ...] = ()
    is_whole: bool = False
    """Set if the records hold all or none: they are persisted as one batch, however large, or not at all."""
    must_lead: bool = False
    """Set if the replies are true only if no other broker has decided since: they wait until that is certain."""


NOTHING: Final = Decision()


class Repeated(Protocol):
    """A decision that a machine makes over and over, and that differs by what is said each time. Pure as well.

    It stands for a command, for `decide` and `apply`, and must come to what these would come to.
    """

    @property
    def count(self) -> int:
        """How many records it persists."""

    def decide(self, said: Any, now_ms: int) -> bytes | None:
        """The records, as they stand in a batch of this time; None if the machine itself must be asked."""

    def apply(self, said: Any, now_ms: int) -> None:
        """The records were persisted."""


class StateMachine(Protocol):
    """Pure: no sockets, files, clocks or dice. Time comes in as `now_ms`."""

    def decide(self, ticket: Ticket, command: Any, now_ms: int) -> Decision:
        """Handle a command. A reply that cannot be given yet comes with a later decision.

        A PenstockError that it raises is the reply, and nothing has changed.
        """

    def wake(self, now_ms: int) -> Decision:
        """Do what is due by now."""

    @property
    def wake_at_ms(self) -> int | None:
        """When `wake` has something to do, if nothing else happens."""

    def apply(self, record: StateRecord, producer_id: int) -> None:
        """A record was persisted, or is read back; in a producer's transaction, or in none (NO_PRODUCER)."""

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """What a producer has persisted within its transaction counts now, or never."""

    def loaded(self, now_ms: int) -> None:
        """Everything was read back: this is the place that decides from now on."""


class BatchedMachine(StateMachine, Protocol):
    """One that must know where in the log its records lie, or has so many that reading them one by one would take
    too long: it applies whole batches, as the log has them, and is asked to apply nothing else."""

    def apply_batch(self, batch: Any, header: Any) -> None:
        """As `apply`, for all records of a batch."""
