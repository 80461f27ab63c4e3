"""A state machine for tests only, the first user of companion logs: counters that are increased and returned."""

from typing import Any

from penstock.foundation.decision import NOTHING, Decision, Reply, StateRecord, Ticket


class Ledger:
    """A command is a key; the reply is how often it was counted, this time included."""

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}

    def decide(self, ticket: Ticket, command: Any, now_ms: int) -> Decision:
        count = self.counts.get(command, 0) + 1
        record = StateRecord(key=command, value=b"%d" % count)
        return Decision(persist=(record,), replies=(Reply(ticket=ticket, value=count),))

    def wake(self, now_ms: int) -> Decision:
        return NOTHING

    @property
    def wake_at_ms(self) -> int | None:
        return None

    def apply(self, record: StateRecord, producer_id: int) -> None:
        self.counts[record.key] = int(record.value or b"0")

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """It takes part in none."""

    def loaded(self, now_ms: int) -> None:
        """There is nothing to do."""
