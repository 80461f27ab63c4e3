"""A simulated thread of a Kafka Streams application in a streams group (KIP-1071), as Kafka's own behaves."""

from dataclasses import dataclass
from typing import Any

from penstock.groups.streams.requests import task_ids
from penstock.groups.streams.tasks import Role, Task, Tasks, tasks_of
from penstock.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from tests.simulation.group_machines import GROUP
from tests.simulation.heartbeat_client import REBALANCE_MS, HeartbeatClient


@dataclass(kw_only=True, eq=False)
class StreamsThread(HeartbeatClient[Task]):
    process_id: str
    topology: Topology

    def _report(self) -> Tasks:
        return frozenset(self.owned)

    def _request(self, is_full: bool) -> StreamsGroupHeartbeatRequest:
        owned = self._report()
        has_tasks = is_full or self.reported != owned or self.must_acknowledge
        return StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            endpoint_information_epoch=0,
            rebalance_timeout_ms=REBALANCE_MS if is_full else -1,
            topology=self.topology if self.epoch == 0 else None,
            active_tasks=task_ids(Role.ACTIVE, owned) if has_tasks else None,
            standby_tasks=task_ids(Role.STANDBY, owned) if has_tasks else None,
            warmup_tasks=() if has_tasks else None,
            process_id=self.process_id if is_full else None,
        )

    def _leave_request(self, epoch: int) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=epoch, endpoint_information_epoch=0
        )

    def _assignment(self, response: Any) -> Tasks | None:
        if response.active_tasks is None or response.standby_tasks is None:
            return None
        return tasks_of(Role.ACTIVE, response.active_tasks) | tasks_of(Role.STANDBY, response.standby_tasks)
