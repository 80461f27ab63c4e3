"""What one decision has come to so far. Several rules, each calling the next, add to one outbox."""

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
        """An error stands in the place of a response, whose version only the handler knows.

        It is for those who have waited, and where something has changed: else it is raised.
        """
        self._replies.append(Reply(ticket=ticket, value=error))

    def decision(self, transaction: ProducerKey | None = None) -> Decision:
        return Decision(
            persist=tuple(self.records),
            transaction=transaction if self.records else None,
            replies=tuple(self._replies),
        )
