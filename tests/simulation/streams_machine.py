"""Stands in for the coordinator's machine and its runtime: one streams group, and the log that it is kept in."""

from typing import Any

from penstock.cluster.image import ClusterImage
from penstock.foundation.decision import Ask, Decision, StateRecord
from penstock.foundation.errors import PenstockError
from penstock.foundation.timers import Timers
from penstock.groups.commands import CreateStreamsTopics
from penstock.groups.settings import GroupSettings
from penstock.groups.streams.group import StreamsGroup
from penstock.groups.streams.records import KINDS
from penstock.groups.streams.requests import check_heartbeat
from penstock.groups.streams.topology import InternalTopic
from penstock.wire.state import kind_of, read_key, read_value
from tests.simulation.consumer_machine import Weather, settings_of

GROUP = "app"


class StreamsMachine:
    """Does what the runtime does: records are appended and applied, then replies go out; or none of it happens."""

    def __init__(self, image: ClusterImage, settings: GroupSettings | None = None) -> None:
        self.image = image
        self.settings = settings or settings_of()
        self.weather = Weather()
        self.log: list[StateRecord] = []
        self.wanted: dict[str, InternalTopic] = {}
        """Topics that the group has asked for."""
        self.timers: Timers[tuple[str, str, str]] = Timers()
        self.group = self._new_group()

    def _new_group(self) -> StreamsGroup:
        return StreamsGroup(
            group_id=GROUP, settings=lambda: self.settings, image=lambda: self.image, timers=self.timers
        )

    def ask(self, body: Any, now_ms: int, *, client_id: str = "client", host: str = "/::1") -> Any:
        """The response, the error in its place, or None if the log did not take what was decided."""
        ask = Ask(body=body, version=0, client_id=client_id, client_host=host)
        try:
            check_heartbeat(body)
            decision = self.group.heartbeat(7, ask, now_ms)
        except PenstockError as error:
            return error
        assert [reply.ticket for reply in decision.replies] == [7]
        return decision.replies[0].value if self.carry_out(decision) else None

    def carry_out(self, decision: Decision) -> bool:
        if decision.persist and not self.weather.persists:
            return False
        for record in decision.persist:
            self.log.append(record)
            _apply(self.group, record)
        for effect in decision.effects:
            assert isinstance(effect, CreateStreamsTopics)
            self.wanted.update((topic.name, topic) for topic in effect.topics)
        return True

    def set_image(self, image: ClusterImage, now_ms: int) -> None:
        self.image = image
        self.carry_out(self.group.topics_changed(now_ms))

    def wake(self, now_ms: int) -> list[str]:
        """Do what is due; the kinds of the timers that removed a member."""
        removed = []
        while (key := self.timers.take(now_ms)) is not None:
            group_id, kind, member_id = key
            assert group_id == GROUP
            decision = self.group.due(kind, member_id, now_ms)
            if self.carry_out(decision) and decision.persist and member_id:
                removed.append(kind)
        return removed

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
        self.group = self._new_group()
        for record in self.log:
            _apply(self.group, record)
        self.group.loaded(now_ms)


def _apply(group: StreamsGroup, record: StateRecord) -> None:
    """Decode a record, as the coordinator does, and give it to the group."""
    kind = kind_of(record.key)
    key, value = KINDS[kind]
    decoded = None if record.value is None else read_value(value, record.value)
    group.apply_record(kind, read_key(key, record.key), decoded)
