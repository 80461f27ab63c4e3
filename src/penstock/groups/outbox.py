"""The outbox of one decision: collects the records and replies that the functions handling a request produce."""

from typing import Any

from penstock.foundation.decision import Decision, ProducerKey, Reply, StateRecord, Ticket
from penstock.foundation.errors import PenstockError


class Outbox:
    def __init__(self) -> None:
        self.records: list[StateRecord] = []
        self._replies: list[Reply] = []

    def reply(self, ticket: Ticket, response: Any) -> None:
        self._replies.append(Reply(ticket=ticket, value=response))

    def refuse(self, ticket: Ticket, error: PenstockError) -> None:
        """Replies with an error, which the request handler converts to a response of the right version.

        Used for requests that were waiting, or after a change of state; in other cases the error is raised.
        """
        self._replies.append(Reply(ticket=ticket, value=error))

    def decision(self, transaction: ProducerKey | None = None) -> Decision:
        return Decision(
            persist=tuple(self.records),
            transaction=transaction if self.records else None,
            replies=tuple(self._replies),
        )
