"""Stands in for the coordinator's machine and its runtime: one streams group, and the log that it is kept in."""

from typing import Any

from penstock.cluster.image import ClusterImage
from penstock.foundation.decision import ClientRequest, Decision
from penstock.groups.commands import CreateStreamsTopics
from penstock.groups.settings import GroupSettings
from penstock.groups.streams.group import StreamsGroup
from penstock.groups.streams.records import StreamsRecords
from penstock.groups.streams.requests import check_heartbeat
from penstock.groups.streams.topology import InternalTopic
from tests.simulation.consumer_machine import TICKET, GroupMachine

GROUP = "app"


class StreamsMachine(GroupMachine):
    kinds = StreamsRecords.kinds

    def __init__(self, image: ClusterImage, settings: GroupSettings | None = None) -> None:
        self.wanted: dict[str, InternalTopic] = {}
        """Topics that the group has asked for."""
        super().__init__(image, settings)

    def new_group(self) -> StreamsGroup:
        return StreamsGroup(GROUP, self)

    def ask(self, body: Any, now_ms: int, *, client_id: str = "client", host: str = "/::1") -> Any:
        command = ClientRequest(body=body, version=0, client_id=client_id, client_host=host)

        def decide() -> Decision:
            check_heartbeat(body)
            return self.group.heartbeat(TICKET, command, now_ms)

        return self.decided(decide)

    def carry_out(self, decision: Decision) -> bool:
        if not super().carry_out(decision):
            return False
        for effect in decision.effects:
            assert isinstance(effect, CreateStreamsTopics)
            self.wanted.update((topic.name, topic) for topic in effect.topics)
        return True

    def wake(self, now_ms: int) -> list[str]:
        """Do what is due; the kinds of the timers that removed a member."""
        return [kind for kind, member_id, is_persisted in self.due(now_ms) if member_id and is_persisted]
