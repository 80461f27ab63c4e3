"""A coordinator of share groups with a log in memory; its members send what a test has them send."""

from dataclasses import replace
from typing import Any

from penstock.cluster.image import ClusterImage
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import Decision, StateRecord, Ticket
from penstock.foundation.errors import PenstockError
from penstock.groups.commands import TopicsChanged
from penstock.groups.share.group import ShareGroup
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

from .coordinator_harness import GROUP, World, image_of, topic_of

COMPANION = b"\2" * 16
Places = dict[str, list[int]]
"""Partitions by the names of their topics."""


class ShareHarness(World):
    """Topics `a` with four partitions and `b` with two, unless a test wants others."""

    def __init__(self, topics: dict[str, int] | None = None, **changes: Any) -> None:
        self.topics = {"a": 4, "b": 2} if topics is None else topics
        self.bare: set[str] = set()
        """Topics without companion logs."""
        self.effects: list[Any] = []
        super().__init__(self._image(), **changes)

    def _image(self) -> ClusterImage:
        made = (topic_of(name, count) for name, count in self.topics.items())
        return image_of(
            *(topic if topic.name in self.bare else replace(topic, companion=COMPANION) for topic in made)
        )

    def carry_out(self, decision: Decision) -> None:
        super().carry_out(decision)
        if not decision.persist or self.can_persist:
            self.effects += decision.effects

    # -- what members say

    def answer(self, member_id: str, epoch: int, *names: str, **fields: Any) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=fields.pop("group_id", GROUP),
            member_id=member_id,
            member_epoch=epoch,
            subscribed_topic_names=names or fields.pop("subscribed_topic_names", None),
            **fields,
        )
        return self.call(request)

    def beat(self, member_id: str, epoch: int, *names: str, **fields: Any) -> ShareGroupHeartbeatResponse:
        """A heartbeat that is answered."""
        answer = self.answer(member_id, epoch, *names, **fields)
        assert isinstance(answer, ShareGroupHeartbeatResponse), answer
        return answer

    def join(self, member_id: str, *names: str, **fields: Any) -> ShareGroupHeartbeatResponse:
        return self.beat(member_id, 0, *(names or ("a",)), **fields)

    def refused(self, member_id: str, epoch: int, *names: str, **fields: Any) -> ErrorCode:
        """A heartbeat that is refused. Nothing is persisted for it."""
        before = len(self.log)
        answer = self.answer(member_id, epoch, *names, **fields)
        assert isinstance(answer, PenstockError), answer
        assert len(self.log) == before
        return answer.code

    def come_to_rest(self) -> None:
        """All members say that they are there, until nothing changes for any of them."""
        for _ in range(3):
            for member in list(self.shared.state.members.values()):
                self.beat(member.member_id, member.epoch)

    def command(self, command: Any) -> Ticket:
        """Have something decided about the group that is no request."""
        self.tickets += 1
        try:
            self.carry_out(self.machine.decide(self.tickets, command, self.now_ms))
        except PenstockError as error:
            self.replies[self.tickets] = error
        return self.tickets

    def set_topics(self, **topics: int | None) -> None:
        """Make, grow or delete (None) topics."""
        deleted = {name for name, count in topics.items() if count is None}
        self.topics = {name: count for name, count in {**self.topics, **topics}.items() if count is not None}
        self.look(deleted)

    def look(self, deleted: set[str] | None = None) -> None:
        """The coordinator gets the image of the topics as they are now."""
        self.image = self.machine.image = self._image()
        self.tell(TopicsChanged(deleted=frozenset(deleted or ())))

    # -- what there is

    @property
    def shared(self) -> ShareGroup:
        group = self.machine.groups[GROUP]
        assert isinstance(group, ShareGroup)
        return group

    def assigned(self, member_id: str) -> Places:
        return self.named(self.shared.state.members[member_id].assigned)

    def named(self, places: Any) -> Places:
        found: Places = {}
        for topic_id, number in sorted(places):
            found.setdefault(self.image.topics[topic_id].name, []).append(number)
        return found

    def assignment(self, answer: ShareGroupHeartbeatResponse) -> Places | None:
        """The assignment of a response."""
        if answer.assignment is None:
            return None
        places = [
            (entry.topic_id, number) for entry in answer.assignment.topic_partitions for number in entry.partitions
        ]
        return self.named(places)

    def compact(self) -> None:
        """What a compacted log is left with, as bytes."""
        last: dict[bytes, StateRecord] = {}
        for entry in self.log:
            assert isinstance(entry, tuple)
            last.pop(entry[0].key, None)
            last[entry[0].key] = entry[0]
        self.log = [
            (StateRecord(key=each.key, value=each.value), -1) for each in last.values() if each.value is not None
        ]
