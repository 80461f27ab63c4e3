"""States of a transactional id, with Kafka's numeric codes, and the allowed transitions."""

from enum import IntEnum
from typing import Final


class State(IntEnum):
    EMPTY = 0
    """The producer is initialised and has not begun a transaction."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """The commit is decided and persisted; only markers have to be written."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """The transactional id has expired. Persisted as a tombstone, never as a state."""
    PREPARE_EPOCH_FENCE = 7
    """The transaction is about to be aborted with a new epoch. Kafka has this state in memory only; unused here."""

    @property
    def label(self) -> str:
        """The name of the state in DescribeTransactions and ListTransactions.

        >>> State.PREPARE_COMMIT.label
        'PrepareCommit'
        """
        return self.name.title().replace("_", "")


ALLOWED: Final[dict[State, frozenset[State]]] = {
    # Under transaction version 2 a producer that does not know whether it has begun may abort (KIP-890).
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT, State.PREPARE_EPOCH_FENCE}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.DEAD: frozenset(),
    State.PREPARE_EPOCH_FENCE: frozenset({State.PREPARE_ABORT}),
}
"""For each state, the states that may follow it."""

PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""States in which the outcome is decided, but markers are not written to all partitions yet."""
AT_REST: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""States without an ongoing transaction: the id may be initialised, begin a transaction, or expire."""
BY_LABEL: Final = {state.label: state for state in State}
