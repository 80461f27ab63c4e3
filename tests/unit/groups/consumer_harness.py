"""A consumer group with a log, topics and a clock; its members send what a test has them send."""

from typing import Any

from penstock.foundation.errors import PenstockError
from penstock.wire.messages.consumer_group_describe import DescribedGroup
from penstock.wire.messages.consumer_group_describe import Member as DescribedMember
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.simulation.group_machines import GROUP, ConsumerMachine, image_of, settings_of, topic_of

Owned = dict[str, list[int]]
"""Partitions by the names of their topics."""

SESSION_MS = 45_000
REBALANCE_MS = 60_000


class ConsumerHarness:
    """Topics `a` with four partitions and `b` with two, unless a test wants others."""

    def __init__(self, topics: dict[str, int] | None = None, **settings: object) -> None:
        self.topics = {"a": 4, "b": 2} if topics is None else topics
        self.incarnations: dict[str, int] = {}
        self.now_ms = 1_000_000
        self.machine = ConsumerMachine(self._image(), settings_of(**settings))

    def _image(self) -> Any:
        return image_of(
            *(topic_of(name, size, self.incarnations.get(name, 0)) for name, size in self.topics.items()),
            revision=len(self.topics),
        )

    # -- what members say

    def beat(
        self, member_id: str, epoch: int, owned: Owned | None = None, *, version: int = 1, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat that is answered."""
        answer = self.answer(member_id, epoch, owned, version=version, **fields)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse), answer
        assert answer.error_code == 0
        return answer

    def refused(self, member_id: str, epoch: int, owned: Owned | None = None, **fields: Any) -> PenstockError:
        """A heartbeat that is refused. Nothing has changed by it."""
        before, log = self.described, len(self.machine.log)
        answer = self.answer(member_id, epoch, owned, **fields)
        assert isinstance(answer, PenstockError), answer
        assert self.described == before
        assert len(self.machine.log) == log
        return answer

    def answer(
        self, member_id: str, epoch: int, owned: Owned | None = None, *, version: int = 1, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse | PenstockError | None:
        host = fields.pop("host", "/::1")
        client_id = fields.pop("client_id", "client")
        request = ConsumerGroupHeartbeatRequest(
            group_id=fields.pop("group_id", GROUP),
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=None if owned is None else self.wire(owned),
            **fields,
        )
        return self.machine.ask(request, self.now_ms, version=version, client_id=client_id, host=host)

    def join(self, member_id: str, *names: str, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        return self.beat(member_id, 0, {}, version=version, **self.full(*names, **fields))

    @staticmethod
    def full(*names: str, **fields: Any) -> dict[str, Any]:
        """What a full request says besides what is owned."""
        return {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": names, **fields}

    def settle(self, *member_ids: str) -> None:
        """These members follow their assignments until nothing changes any more."""
        for _ in range(10):
            before = self.described
            for member in self.described.members:
                if member.member_id in member_ids:
                    response = self.beat(member.member_id, member.member_epoch, self.assigned(member.member_id))
                    self.beat(member.member_id, response.member_epoch, self.assigned(member.member_id))
            if self.described == before:
                return
        raise AssertionError("the group does not come to rest")

    # -- what there is

    def wire(self, owned: Owned) -> list[TopicPartitions]:
        by_name = self.machine.image.by_name
        return [
            TopicPartitions(topic_id=by_name[name].topic_id, partitions=numbers) for name, numbers in owned.items()
        ]

    def named(self, answer: ConsumerGroupHeartbeatResponse) -> Owned | None:
        """The assignment of a response."""
        if answer.assignment is None:
            return None
        topics = self.machine.image.topics
        return {topics[entry.topic_id].name: list(entry.partitions) for entry in answer.assignment.topic_partitions}

    @property
    def described(self) -> DescribedGroup:
        return self.machine.group.describe()

    def member(self, member_id: str) -> DescribedMember:
        (found,) = [member for member in self.described.members if member.member_id == member_id]
        return found

    def assigned(self, member_id: str) -> Owned:
        """What the coordinator wants the member to own now: without what it has to give up."""
        found = self.machine.group.state.members[member_id]
        owned: Owned = {}
        for place in sorted(found.assigned):
            owned.setdefault(self.machine.image.topics[place.topic_id].name, []).append(place.partition)
        return owned

    def target(self, member_id: str) -> Owned:
        entries = self.member(member_id).target_assignment.topic_partitions
        return {entry.topic_name: list(entry.partitions) for entry in entries}

    # -- what happens

    def pass_time(self, ms: int) -> list[str]:
        """Runs the timers that are due by then; returns the ids of the members that they removed."""
        self.now_ms += ms
        before = set(self.machine.group.state.members)
        self.machine.wake(self.now_ms)
        return sorted(before - set(self.machine.group.state.members))

    def set_topics(self, **topics: int | None) -> None:
        """Make, grow or delete (None) topics."""
        for name, size in topics.items():
            if size is None:
                del self.topics[name]
                self.incarnations[name] = self.incarnations.get(name, 0) + 1
            else:
                self.topics[name] = size
        self.machine.set_image(self._image(), self.now_ms)
