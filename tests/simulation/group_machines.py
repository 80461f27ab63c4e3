"""Group machines without a broker: one consumer or streams group, its timers, and its log in memory."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from itertools import count
from typing import Any

import pytest

from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.foundation.decision import ClientRequest, Decision, StateRecord
from penstock.foundation.errors import PenstockError
from penstock.foundation.timers import Timers
from penstock.groups.commands import CreateStreamsTopics
from penstock.groups.consumer import requests as consumer_requests
from penstock.groups.consumer import target
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.records import ConsumerRecords
from penstock.groups.modern import target_assignment
from penstock.groups.settings import GROUP_SETTINGS, GroupSettings
from penstock.groups.share import target as share_target
from penstock.groups.streams import requests as streams_requests
from penstock.groups.streams import target as streams_target
from penstock.groups.streams.group import StreamsGroup
from penstock.groups.streams.records import StreamsRecords
from penstock.groups.streams.topology import InternalTopic
from penstock.wire.state import kind_of, read_key, read_value

GROUP = "readers"
TICKET = 7


def settings_of(**values: object) -> GroupSettings:
    """The default settings with some changes, by Kafka's names with underscores."""
    table = {entry.name: entry.parse(entry.default) for entry in GROUP_SETTINGS}
    for name, value in values.items():
        entry = next(entry for entry in GROUP_SETTINGS if entry.name == name.replace("_", "."))
        table[entry.name] = entry.parse(str(value))
    return GroupSettings.of(table.__getitem__)


def topic_of(name: str, partitions: int, incarnation: int = 0) -> Topic:
    state = PartitionState(replicas=(1,), leader=1, leader_epoch=0, isr=(1,))
    return Topic(
        topic_id=blake2b(f"{name}/{incarnation}".encode(), digest_size=16).digest(),
        name=name,
        partitions=dict.fromkeys(range(partitions), state),
    )


def image_of(*topics: Topic, revision: int = 1) -> ClusterImage:
    return ClusterImage(
        revision=revision,
        topics={topic.topic_id: topic for topic in topics},
        by_name={topic.name: topic for topic in topics},
    )


class GroupMachine:
    """One group and its log, as the coordinator runs it: records are appended and applied, then replies are sent."""

    kinds: Mapping[int, tuple[type, type]]
    """The classes of the keys and values of its records."""

    def __init__(self, image: ClusterImage, settings: GroupSettings | None = None) -> None:
        self.image = image
        self.settings = settings or settings_of()
        self.can_persist = True
        """Whether the log can be written. If not, a decision with records has no effect."""
        self.log: list[StateRecord] = []
        self.timers: Timers[tuple[str, str, str]] = Timers()
        self.group = self.new_group()

    def new_group(self) -> Any:
        raise NotImplementedError

    def settings_of(self, group_id: str) -> GroupSettings:
        return self.settings

    def check(self, request: ClientRequest) -> None:
        """Raises the error of a request that is refused before the group sees it."""
        raise NotImplementedError

    def ask(self, body: Any, now_ms: int, *, version: int = 1, client_id: str = "client", host: str = "/::1") -> Any:
        """Returns the response, or the error instead of it, or None if the log cannot be written."""
        request = ClientRequest(body=body, version=version, client_id=client_id, client_host=host)
        try:
            self.check(request)
            decision = self.group.heartbeat(TICKET, request, now_ms)
        except PenstockError as error:
            return error
        assert [reply.ticket for reply in decision.replies] == [TICKET]
        return decision.replies[0].value if self.carry_out(decision) else None

    def carry_out(self, decision: Decision) -> bool:
        if decision.persist and not self.can_persist:
            return False
        for record in decision.persist:
            self.log.append(record)
            apply(self.group, record, self.kinds)
        return True

    def set_image(self, image: ClusterImage, now_ms: int) -> None:
        self.image = image
        self.carry_out(self.group.topics_changed(now_ms))

    def wake(self, now_ms: int) -> list[str]:
        """Runs the timers that are due; returns the kinds of those that removed a member."""
        removed = []
        while (key := self.timers.take(now_ms)) is not None:
            group_id, kind, member_id = key
            assert group_id == self.group.group_id
            decision = self.group.on_timer(kind, member_id, now_ms)
            if self.carry_out(decision) and decision.persist and member_id:
                removed.append(kind)
        return removed

    def restart(self, now_ms: int, *, compacted: bool = False) -> None:
        """Another broker becomes the coordinator, and has only the log."""
        if compacted:
            last = {record.key: index for index, record in enumerate(self.log)}
            self.log = [
                record
                for index, record in enumerate(self.log)
                if last[record.key] == index and record.value is not None
            ]
        self.timers = Timers()
        self.group = self.new_group()
        for record in self.log:
            apply(self.group, record, self.kinds)
        self.group.loaded(now_ms)


class ConsumerMachine(GroupMachine):
    kinds = ConsumerRecords.kinds

    def __init__(self, image: ClusterImage, settings: GroupSettings | None = None) -> None:
        self._numbers = count(1)
        super().__init__(image, settings)

    def new_group(self) -> ConsumerGroup:
        return ConsumerGroup(GROUP, self)

    def new_member_id(self, name: str) -> str:
        return f"{name}-{next(self._numbers)}"

    def check(self, request: ClientRequest) -> None:
        consumer_requests.check_heartbeat(request, self.settings.consumer_assignors)


class StreamsMachine(GroupMachine):
    kinds = StreamsRecords.kinds

    def __init__(self, image: ClusterImage, settings: GroupSettings | None = None) -> None:
        self.wanted: dict[str, InternalTopic] = {}
        """Internal topics that the group has asked for."""
        super().__init__(image, settings)

    def new_group(self) -> StreamsGroup:
        return StreamsGroup(GROUP, self)

    def check(self, request: ClientRequest) -> None:
        streams_requests.check_heartbeat(request.body)

    def carry_out(self, decision: Decision) -> bool:
        if not super().carry_out(decision):
            return False
        for effect in decision.effects:
            assert isinstance(effect, CreateStreamsTopics)
            self.wanted.update((topic.name, topic) for topic in effect.topics)
        return True


def apply(group: Any, record: StateRecord, kinds: Mapping[int, tuple[type, type]] = ConsumerRecords.kinds) -> None:
    """Decodes a record, as the coordinator does, and applies it to the group."""
    kind = kind_of(record.key)
    key, value = kinds[kind]
    decoded = None if record.value is None else read_value(value, record.value)
    group.apply_record(kind, read_key(key, record.key), decoded)


@contextmanager
def targets_in_pieces(is_large: bool) -> Iterator[None]:
    """Makes groups compute their target assignments in the smallest pieces, as large groups do, if `is_large`."""
    with pytest.MonkeyPatch.context() as patch:
        if is_large:
            patch.setattr(target, "COST_AT_ONCE", 1)
            patch.setattr(share_target, "COST_AT_ONCE", 1)
            patch.setattr(streams_target, "COST_AT_ONCE", 1)
            patch.setattr(target_assignment, "STEPS_AT_ONCE", 1)
            patch.setattr(target_assignment, "PARTITIONS_AT_ONCE", 1)
        yield
