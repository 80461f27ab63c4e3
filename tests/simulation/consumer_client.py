"""A simulated consumer of a consumer group (KIP-848), as Kafka's own client behaves."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicIdPartition
from penstock.groups.modern.members import by_topic
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.simulation.group_machines import GROUP
from tests.simulation.heartbeat_client import REBALANCE_MS, HeartbeatClient


class Report(NamedTuple):
    """What a full heartbeat says about a consumer."""

    names: frozenset[str]
    regex: str
    owned: frozenset[TopicIdPartition]


@dataclass(kw_only=True, eq=False)
class Consumer(HeartbeatClient[TopicIdPartition]):
    fenced_by: ClassVar[tuple[ErrorCode, ...]] = (
        *HeartbeatClient.fenced_by,
        ErrorCode.FENCED_INSTANCE_ID,
    )

    names: frozenset[str] = frozenset()
    regex: str = ""

    def _report(self) -> Report:
        return Report(self.names, self.regex, frozenset(self.owned))

    def _request(self, is_full: bool) -> ConsumerGroupHeartbeatRequest:
        names, regex, owned = self._report()
        known = self.reported
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if is_full else -1,
            subscribed_topic_names=sorted(names) if is_full or known.names != names else None,
            subscribed_topic_regex=regex if is_full or known.regex != regex else None,
            topic_partitions=_wire(owned) if is_full or known.owned != owned or self.must_acknowledge else None,
        )

    def _leave_request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )

    def _assignment(self, response: Any) -> frozenset[TopicIdPartition] | None:
        if response.assignment is None:
            return None
        return frozenset(
            TopicIdPartition(topic.topic_id, number)
            for topic in response.assignment.topic_partitions
            for number in topic.partitions
        )

    def _on_error(self, error: PenstockError, now_ms: int) -> None:
        if error.code == ErrorCode.UNRELEASED_INSTANCE_ID:
            assert self.epoch == 0, "only a member that joins can find its instance id in use"
            self.reported = None
        else:
            super()._on_error(error, now_ms)


def _wire(owned: frozenset[TopicIdPartition]) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_topic(owned).items()]
