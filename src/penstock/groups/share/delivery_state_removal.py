"""Deletes the delivery state of a share group at all partition leaders, with retries. Pure.

A record first marks the topics as deleting. Then the leaders are asked repeatedly until all have deleted the state.
Then another record removes the mark, and the requests that wait for the deletion are answered. So a new group with
the name of a deleted group never continues where the deleted group stopped.
"""

from typing import Any, Final, NamedTuple

from penstock.foundation.decision import Decision, Reply, StateRecord, Ticket
from penstock.foundation.errors import CoordinatorNotAvailable, PenstockError
from penstock.groups.commands import DeleteStateAtLeaders
from penstock.groups.errors import NonEmptyGroup
from penstock.groups.share.records import DeliveryTopics, ShareRecords
from penstock.groups.share.state import ShareState

DELIVERY_REMOVAL: Final = "removal"
"""Kind of the timer that repeats the deletion of delivery state until all leaders have deleted it."""


class _WaitingRequest(NamedTuple):
    ticket: Ticket
    topic_ids: frozenset[bytes]
    reply: Any
    ends_group: bool


class DeliveryStateRemoval:
    """Deletes the delivery state (which messages are in flight or acknowledged) of one share group at the partition
    leaders. Requests that wait for the deletion are answered when it is complete."""

    def __init__(self, group_id: str, state: ShareState, records: ShareRecords) -> None:
        self._group_id = group_id
        self._state = state
        self._share_records = records
        self._waiting: list[_WaitingRequest] = []

    @property
    def topic_ids(self) -> frozenset[bytes]:
        """Ids of the topics in which the group has delivery state, including state that is being deleted."""
        return frozenset(self._state.delivery_topics.topics) | frozenset(self._state.delivery_topics.deleting)

    def begin(self, ticket: Ticket, topic_ids: frozenset[bytes], reply: Any, *, ends_group: bool = False) -> Decision:
        """Starts to delete delivery state, and the group if `ends_group`; sends `reply` when that is done."""
        if self._state.members:
            raise NonEmptyGroup(f"share group {self._group_id!r} has members; stop them first")
        self._waiting.append(_WaitingRequest(ticket, topic_ids, reply, ends_group))
        known = self._state.delivery_topics
        names = {topic_id: name for topic_id, (name, _) in known.topics.items()}
        going = {topic_id: names.get(topic_id, "") for topic_id in topic_ids if topic_id not in known.deleting}
        left = DeliveryTopics(
            {topic_id: entry for topic_id, entry in known.topics.items() if topic_id not in topic_ids},
            {**known.deleting, **going},
        )
        return Decision(persist=self._records(left), effects=(self._delete_effect(left),))

    def retry(self) -> Decision:
        """Asks the partition leaders again to delete the delivery state. Waiting requests get a retriable error if
        the record that marks their topics as deleting could not be persisted."""
        deleting = frozenset(self._state.delivery_topics.deleting)
        lost = [one for one in self._waiting if not one.topic_ids & deleting]
        self._waiting = [one for one in self._waiting if one.topic_ids & deleting]
        error = CoordinatorNotAvailable("the request could not be persisted; try again")
        return Decision(
            replies=tuple(Reply(one.ticket, error) for one in lost),
            effects=(self._delete_effect(self._state.delivery_topics),) if deleting else (),
        )

    def complete(self, topic_ids: frozenset[bytes]) -> tuple[tuple[StateRecord, ...], list[Reply], bool]:
        """Completes the removal for topics in which all leaders have deleted the group's delivery state.

        Returns the records to persist, the replies to send, and whether to delete the group.
        """
        known = self._state.delivery_topics
        left = DeliveryTopics(
            known.topics, {topic_id: name for topic_id, name in known.deleting.items() if topic_id not in topic_ids}
        )
        done = [one for one in self._waiting if not one.topic_ids & frozenset(left.deleting)]
        self._waiting = [one for one in self._waiting if one not in done]
        ends = any(one.ends_group for one in done) and not self._state.members
        replies = [Reply(one.ticket, self._outcome(one)) for one in done]
        return self._records(left) if left != known else (), replies, ends

    def _outcome(self, one: _WaitingRequest) -> Any | PenstockError:
        if one.ends_group and self._state.members:
            return NonEmptyGroup(f"share group {self._group_id!r} has members again; stop them first")
        return one.reply

    def _records(self, delivery_topics: DeliveryTopics) -> tuple[StateRecord, ...]:
        return (self._share_records.to_record(self._share_records.delivery_topics(delivery_topics)),)

    def _delete_effect(self, delivery_topics: DeliveryTopics) -> DeleteStateAtLeaders:
        return DeleteStateAtLeaders(group_id=self._group_id, topic_ids=frozenset(delivery_topics.deleting))
