"""Stands in for the coordinator's machine and its runtime: one group, and the log that it is kept in."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from typing import Any

import pytest

from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.foundation.decision import ClientRequest, Decision, StateRecord
from penstock.foundation.errors import PenstockError
from penstock.foundation.timers import Timers
from penstock.groups.consumer import target
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.records import ConsumerRecords
from penstock.groups.consumer.requests import check_heartbeat
from penstock.groups.modern import target_assignment
from penstock.groups.settings import GROUP_SETTINGS, GroupSettings
from penstock.groups.share import target as share_target
from penstock.groups.streams import target as streams_target
from penstock.wire.state import kind_of, read_key, read_value

GROUP = "readers"
TICKET = 7


def settings_of(**values: object) -> GroupSettings:
    """The defaults, but for some, by Kafka's names with underscores."""
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


@dataclass(slots=True)
class Weather:
    """Whether the log takes what is decided."""

    persists: bool = True


class GroupMachine:
    """Does what the runtime does: records are appended and applied, then replies go out; or none of it happens."""

    kinds: Mapping[int, tuple[type, type]]
    """The classes of the keys and values of its records."""

    def __init__(self, image: ClusterImage, settings: GroupSettings | None = None) -> None:
        self.image = image
        self.settings = settings or settings_of()
        self.weather = Weather()
        self.log: list[StateRecord] = []
        self.timers: Timers[tuple[str, str, str]] = Timers()
        self.group = self.new_group()

    def new_group(self) -> Any:
        raise NotImplementedError

    def settings_of(self, group_id: str) -> GroupSettings:
        return self.settings

    def decided(self, decide: Callable[[], Decision]) -> Any:
        """The response, the error in its place, or None if the log did not take what was decided."""
        try:
            decision = decide()
        except PenstockError as error:
            return error
        assert [reply.ticket for reply in decision.replies] == [TICKET]
        return decision.replies[0].value if self.carry_out(decision) else None

    def carry_out(self, decision: Decision) -> bool:
        if decision.persist and not self.weather.persists:
            return False
        for record in decision.persist:
            self.log.append(record)
            apply(self.group, record, self.kinds)
        return True

    def set_image(self, image: ClusterImage, now_ms: int) -> None:
        self.image = image
        self.carry_out(self.group.topics_changed(now_ms))

    def due(self, now_ms: int) -> Iterator[tuple[str, str, bool]]:
        """Do what is due: the kind of each timer, its member, and whether something was persisted."""
        while (key := self.timers.take(now_ms)) is not None:
            group_id, kind, member_id = key
            assert group_id == self.group.group_id
            decision = self.group.on_timer(kind, member_id, now_ms)
            yield kind, member_id, self.carry_out(decision) and bool(decision.persist)

    def restart(self, now_ms: int, *, compacted: bool = False) -> None:
        """Another broker takes over, and knows only what the log has."""
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
        self.removed: Counter[str] = Counter()
        """How many members each kind of timer has removed."""
        self._numbers = count(1)
        super().__init__(image, settings)

    def new_group(self) -> ConsumerGroup:
        return ConsumerGroup(GROUP, self)

    def new_member_id(self, name: str) -> str:
        return f"{name}-{next(self._numbers)}"

    def ask(self, body: Any, now_ms: int, *, version: int = 1, client_id: str = "client", host: str = "/::1") -> Any:
        command = ClientRequest(body=body, version=version, client_id=client_id, client_host=host)

        def decide() -> Decision:
            check_heartbeat(command, self.settings.consumer_assignors)
            return self.group.heartbeat(TICKET, command, now_ms)

        return self.decided(decide)

    def wake(self, now_ms: int) -> list[str]:
        """Do what is due; the ids of members that are no longer there."""
        before = set(self.group.state.members)
        for kind, _, is_persisted in self.due(now_ms):
            self.removed[kind] += is_persisted
        return sorted(before - set(self.group.state.members))


def apply(group: Any, record: StateRecord, kinds: Mapping[int, tuple[type, type]] = ConsumerRecords.kinds) -> None:
    """Decode a record, as the coordinator does, and give it to the group."""
    kind = kind_of(record.key)
    key, value = kinds[kind]
    decoded = None if record.value is None else read_value(value, record.value)
    group.apply_record(kind, read_key(key, record.key), decoded)


@contextmanager
def targets_in_pieces(is_large: bool) -> Iterator[None]:
    """Has groups worked out their targets as if they were large, in the smallest pieces; or as they are."""
    with pytest.MonkeyPatch.context() as patch:
        if is_large:
            patch.setattr(target, "COST_AT_ONCE", 1)
            patch.setattr(share_target, "COST_AT_ONCE", 1)
            patch.setattr(streams_target, "COST_AT_ONCE", 1)
            patch.setattr(target_assignment, "STEPS_AT_ONCE", 1)
            patch.setattr(target_assignment, "PARTITIONS_AT_ONCE", 1)
        yield
