"""The outbox of one decision: records and replies, collected while rules of the group call each other."""

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
        """Replies with an error; the request handler builds the response, since only it knows the version.

        For requests that have waited, or when state has changed; otherwise the error is raised.
        """
        self._replies.append(Reply(ticket=ticket, value=error))

    def decision(self, transaction: ProducerKey | None = None) -> Decision:
        return Decision(
            persist=tuple(self.records),
            transaction=transaction if self.records else None,
            replies=tuple(self._replies),
        )
