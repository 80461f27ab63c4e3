"""Members of share groups by raw frames (KIP-932)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from penstock.wire.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.brokers import BrokerProcess

from .raw import RawClient, records_of
from .raw_members import find_coordinator
from .waiting import wait_until

GROUP_RESOURCE: Final = 32
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1

Acks = Sequence[tuple[int, int, Sequence[int]]]
"""First and last offset, and what is said of them."""


class Got(NamedTuple):
    """What one partition is answered with."""

    error: ErrorCode
    acknowledge_error: ErrorCode
    acquired: list[tuple[int, int, int]]
    """First and last offset, and how often they were delivered."""
    values: dict[int, bytes | None]
    """Of the messages that were acquired, by their offsets."""


class ShareMember:
    """One member with a connection of its own. Its session goes on by itself."""

    def __init__(self, broker: BrokerProcess, group: str, topic: str, name: str = "m1", *, version: int = 2) -> None:
        self.raw = RawClient(broker.address)
        self.group = group
        self.name = name
        self.topic_id: bytes = self.raw.describe(topic).topic_id
        self.topic = topic
        self.version = version
        self.epoch = 0
        self.member_epoch = 0

    def close_connection(self) -> None:
        self.raw.socket.close()

    # -- the group

    def beat(self, member_epoch: int, *topics: str) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.name,
            member_epoch=member_epoch,
            subscribed_topic_names=topics or None,
        )
        answer: ShareGroupHeartbeatResponse = self.raw.ask(request, 1)
        return answer

    def join(self, partitions: int = 1) -> "ShareMember":
        """Join, and return when this member may fetch from so many partitions."""
        find_coordinator(self.raw, self.group)
        assigned: list[int] = []

        def is_assigned() -> bool:
            answer = self.beat(self.member_epoch, *(() if self.member_epoch else (self.topic,)))
            assert answer.error_code == 0, answer
            self.member_epoch = answer.member_epoch
            if answer.assignment is not None:
                assigned[:] = [number for entry in answer.assignment.topic_partitions for number in entry.partitions]
            return len(assigned) == partitions

        wait_until(is_assigned, f"{self.name} is assigned {partitions} partitions", seen=assigned)
        wait_until(
            lambda: not any(entry.error_code for entry in self.described(*range(partitions)).values()),
            "leaders have read the delivery state back",
        )
        return self

    def described(self, *partitions: int, version: int = 1) -> dict[int, Any]:
        """Where the group is, by partition."""
        topic = DescribeShareGroupOffsetsRequestTopic(topic_name=self.topic, partitions=partitions)
        group = DescribeShareGroupOffsetsRequestGroup(group_id=self.group, topics=[topic])
        (found,) = self.raw.ask(DescribeShareGroupOffsetsRequest(groups=[group]), version).groups
        assert found.error_code == 0, found
        return {entry.partition_index: entry for entry in found.topics[0].partitions}

    # -- messages

    def request(self, acks: Mapping[int, Acks] | None = None, **fields: Any) -> ShareFetchRequest:
        """A ShareFetch as it would be sent next; `partitions` to add, `forget` to remove, all else by its name."""
        acks = acks or {}
        partitions = fields.pop("partitions", (0,) if self.epoch == 0 else ())
        forget = fields.pop("forget", ())
        named = [
            FetchPartition(partition_index=number, acknowledgement_batches=_batches(acks.get(number, ())))
            for number in sorted({*partitions, *acks})
        ]
        values = {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": [FetchTopic(topic_id=self.topic_id, partitions=named)] if named else [],
            "forgotten_topics_data": [ForgottenTopic(topic_id=self.topic_id, partitions=forget)] if forget else [],
        }
        return ShareFetchRequest(**{**values, **fields})

    def ask(self, acks: Mapping[int, Acks] | None = None, **fields: Any) -> ShareFetchResponse:
        request = self.request(acks, **fields)
        answer: ShareFetchResponse = self.raw.ask(request, self.version)
        self.note(answer.error_code)
        return answer

    def note(self, error_code: int) -> None:
        """The session goes on if it was not refused."""
        if error_code == 0:
            self.epoch += 1

    def fetch(self, acks: Mapping[int, Acks] | None = None, **fields: Any) -> dict[int, Got]:
        """What each partition that has something to say is answered with."""
        return answered(self.ask(acks, **fields))

    def take(self, count: int = 1, *, partition: int = 0, **fields: Any) -> list[int]:
        """The offsets of messages that are there, or come, however many fetches that takes."""
        found: list[int] = []

        def look() -> bool:
            got = self.fetch(**{"max_wait_ms": 200, **fields}).get(partition)
            if got is not None:
                assert got.error == ErrorCode.NONE, got
                found.extend(got.values)
            return len(found) >= count

        wait_until(look, f"{count} messages for {self.name}", seen=found)
        return found

    def acknowledge(self, *acks: tuple[int, int, Sequence[int]], partition: int = 0, **fields: Any) -> ErrorCode:
        """By ShareAcknowledge; what is said about the partition."""
        answer = self.acknowledged({partition: acks}, **fields)
        assert answer.error_code == 0, answer
        ((entry,),) = ([entry.partitions for entry in answer.responses],)
        return ErrorCode(entry[0].error_code)

    def acknowledged(self, acks: Mapping[int, Acks], **fields: Any) -> ShareAcknowledgeResponse:
        answer: ShareAcknowledgeResponse = self.raw.ask(self.acknowledging(acks, **fields), self.version)
        self.note(answer.error_code)
        return answer

    def acknowledging(self, acks: Mapping[int, Acks], **fields: Any) -> ShareAcknowledgeRequest:
        """A ShareAcknowledge as it would be sent next."""
        named = [
            AcknowledgePartition(
                partition_index=number,
                acknowledgement_batches=[
                    AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=kinds)
                    for first, last, kinds in entries
                ],
            )
            for number, entries in acks.items()
        ]
        return ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=fields.pop("share_session_epoch", self.epoch),
            topics=[AcknowledgeTopic(topic_id=self.topic_id, partitions=named)],
            **fields,
        )


def answered(response: ShareFetchResponse) -> dict[int, Got]:
    assert response.error_code == 0, response
    found = {}
    for topic in response.responses:
        for data in topic.partitions:
            acquired = [(one.first_offset, one.last_offset, one.delivery_count) for one in data.acquired_records]
            offsets = {offset for first, last, _ in acquired for offset in range(first, last + 1)}
            values = {one.offset: one.value for one in records_of(data.records) if one.offset in offsets}
            found[data.partition_index] = Got(
                ErrorCode(data.error_code), ErrorCode(data.acknowledge_error_code), acquired, values
            )
    return found


def _batches(acks: Acks) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=kinds)
        for first, last, kinds in acks
    ]


def configure(broker: BrokerProcess, group: str, settings: Mapping[str, str]) -> None:
    """Give a group settings of its own."""
    with RawClient(broker.address) as raw:
        resource = AlterConfigsResource(
            resource_type=GROUP_RESOURCE,
            resource_name=group,
            configs=[AlterableConfig(name=name, config_operation=0, value=text) for name, text in settings.items()],
        )
        answer = raw.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert answer.responses[0].error_code == 0, answer


def earliest(broker: BrokerProcess, group: str, **settings: str) -> None:
    """Have a group begin at the beginning; other settings by their names with underscores."""
    named = {name.replace("_", "."): text for name, text in settings.items()}
    configure(broker, group, {"share.auto.offset.reset": "earliest", **named})


def offsets_of(ranges: Iterable[tuple[int, int, int]]) -> list[int]:
    return [offset for first, last, _ in ranges for offset in range(first, last + 1)]
