"""The outbox of one decision: collects the records and replies that the functions handling a request produce."""

from typing import Any

from penstock.foundation.decision import Decision, ProducerKey, Reply, StateRecord, Ticket


class Outbox:
    def __init__(self) -> None:
        self.records: list[StateRecord] = []
        self._replies: list[Reply] = []

    def reply(self, ticket: Ticket, response: Any) -> None:
        """Adds a reply. A PenstockError is converted to a response of the right version by the request handler; most
        errors are raised instead: only those of waiting requests, or after a change of state, are replies."""
        self._replies.append(Reply(ticket=ticket, value=response))

    def decision(self, transaction: ProducerKey | None = None) -> Decision:
        return Decision(
            persist=tuple(self.records),
            transaction=transaction if self.records else None,
            replies=tuple(self._replies),
        )
