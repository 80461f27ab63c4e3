"""The outbox of one decision: collects the records and replies that the functions handling a request produce."""

from typing import Any

from penstock.foundation.decision import Decision, ProducerKey, Reply, StateRecord, Ticket


class Outbox:
    def __init__(self) -> None:
        self.records: list[StateRecord] = []
        self._replies: list[Reply] = []

    def reply(self, ticket: Ticket, response: Any) -> None:
        """Adds a reply. A PenstockError as `response` is converted to an error response by the request handler. To
        refuse the request that is being handled, raise the error instead, unless group state has already changed."""
        self._replies.append(Reply(ticket=ticket, value=response))

    def decision(self, transaction: ProducerKey | None = None) -> Decision:
        return Decision(
            persist=tuple(self.records),
            transaction=transaction if self.records else None,
            replies=tuple(self._replies),
        )
