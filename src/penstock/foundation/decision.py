"""Decide, then apply: what a pure state machine gives back, and a shell carries out in this order.

First the records are persisted, then applied; when they are committed, the replies go out and the effects are done.
State that must survive changes only in `apply`, so that recovery, failover and normal running are the same code.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol

NO_PRODUCER: Final = -1
Ticket = int
"""A request that waits for a reply; the shell knows whose it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRecord:
    """One change of state: a key of a compacted log and its value, None if it is gone."""

    key: bytes
    value: bytes | None
    producer_id: int = NO_PRODUCER
    """Set if the change counts only once this producer's transaction has committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    ticket: Ticket
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to persist, then to whom to say what, then what else to do, and when to ask again."""

    persist: tuple[StateRecord, ...] = ()
    replies: tuple[Reply, ...] = ()
    effects: tuple[Any, ...] = ()


NOTHING: Final = Decision()


class StateMachine(Protocol):
    """Pure: no sockets, files, clocks or dice. Time comes in as `now_ms`."""

    def decide(self, ticket: Ticket, command: Any, now_ms: int) -> Decision:
        """Handle a command. A reply that cannot be given yet comes with a later decision."""

    def wake(self, now_ms: int) -> Decision:
        """Do what is due by now."""

    @property
    def wake_at_ms(self) -> int | None:
        """When `wake` has something to do, if nothing else happens."""

    def apply(self, record: StateRecord) -> None:
        """A record was persisted, or is read back."""

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """What a producer has persisted within its transaction counts now, or never."""

    def loaded(self, now_ms: int) -> None:
        """Everything was read back: this is the place that decides from now on."""
