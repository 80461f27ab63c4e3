"""Where a share group has delivery state, and how that is got rid of. Pure.

Delivery state is with the leaders of partitions. What is to go is noted first, then they are asked to forget it, as
often as need be; when all have, the note is removed, and whoever asked is answered. So a group that was deleted never
begins, under its old name, where it had been.
"""

from typing import Any, Final, NamedTuple

from penstock.foundation.decision import Decision, Reply, StateRecord, Ticket
from penstock.foundation.errors import CoordinatorNotAvailable, PenstockError
from penstock.groups.commands import DropAtLeaders
from penstock.groups.errors import NonEmptyGroup
from penstock.groups.share import records as share_records
from penstock.groups.share.records import Delivering
from penstock.groups.share.state import ShareState

DROPPING: Final = "dropping"
"""The timer of a group with delivery state that leaders have not forgotten yet."""


class _Waiting(NamedTuple):
    ticket: Ticket
    topic_ids: frozenset[bytes]
    reply: Any
    ends_group: bool


class Dropping:
    """Delivery state of one group that is on its way out, and who waits for that."""

    def __init__(self, group_id: str, state: ShareState) -> None:
        self._group_id = group_id
        self._state = state
        self._waiting: list[_Waiting] = []

    @property
    def topic_ids(self) -> frozenset[bytes]:
        """Of all topics that the group has, or still has, delivery state in."""
        return frozenset(self._state.delivering.topics) | frozenset(self._state.delivering.deleting)

    def begin(self, ticket: Ticket, topic_ids: frozenset[bytes], reply: Any, *, ends_group: bool = False) -> Decision:
        """Have delivery state dropped; the reply comes when it is. `ends_group`: and the group with it."""
        if self._state.members:
            raise NonEmptyGroup(f"share group {self._group_id!r} has members; stop them first")
        self._waiting.append(_Waiting(ticket, topic_ids, reply, ends_group))
        known = self._state.delivering
        names = {topic_id: name for topic_id, (name, _) in known.topics.items()}
        going = {topic_id: names.get(topic_id, "") for topic_id in topic_ids if topic_id not in known.deleting}
        left = Delivering(
            {topic_id: entry for topic_id, entry in known.topics.items() if topic_id not in topic_ids},
            {**known.deleting, **going},
        )
        return Decision(persist=self._records(left), effects=(self._drop_effect(left),))

    def remind(self) -> Decision:
        """Ask again. Whoever waits for what could not be noted is told to try again."""
        deleting = frozenset(self._state.delivering.deleting)
        lost = [one for one in self._waiting if not one.topic_ids & deleting]
        self._waiting = [one for one in self._waiting if one.topic_ids & deleting]
        refusal = CoordinatorNotAvailable("what was asked for could not be persisted; try again")
        return Decision(
            replies=tuple(Reply(one.ticket, refusal) for one in lost),
            effects=(self._drop_effect(self._state.delivering),) if deleting else (),
        )

    def ended(self, topic_ids: frozenset[bytes]) -> tuple[tuple[StateRecord, ...], list[Reply], bool]:
        """The leaders have forgotten: what to persist, whom to answer, and whether the group ends here."""
        known = self._state.delivering
        left = Delivering(
            known.topics, {topic_id: name for topic_id, name in known.deleting.items() if topic_id not in topic_ids}
        )
        done = [one for one in self._waiting if not one.topic_ids & frozenset(left.deleting)]
        self._waiting = [one for one in self._waiting if one not in done]
        ends = any(one.ends_group for one in done) and not self._state.members
        replies = [Reply(one.ticket, self._outcome(one)) for one in done]
        return self._records(left) if left != known else (), replies, ends

    def _outcome(self, one: _Waiting) -> Any | PenstockError:
        if one.ends_group and self._state.members:
            return NonEmptyGroup(f"share group {self._group_id!r} has got members meanwhile")
        return one.reply

    def _records(self, delivering: Delivering) -> tuple[StateRecord, ...]:
        return (share_records.to_record(share_records.delivering(self._group_id, delivering)),)

    def _drop_effect(self, delivering: Delivering) -> DropAtLeaders:
        return DropAtLeaders(group_id=self._group_id, topic_ids=frozenset(delivering.deleting))
