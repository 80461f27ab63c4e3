"""Consumer group administration: list, describe, offsets, commit offsets for an empty group, delete."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.client.cluster import CoordinatorKey, KafkaClient
from penstock.client.errors import ServerError, UnsupportedByBroker, check, refusal
from penstock.client.share_groups import ShareOffset, share_group_offsets
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import MalformedRequest
from penstock.foundation.ids import TopicPartition
from penstock.wire.consumer_protocol import ConsumerProtocolAssignment
from penstock.wire.messages import consumer_group_describe, share_group_describe
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from penstock.wire.messages.consumer_group_describe import Member as ConsumerMember
from penstock.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from penstock.wire.state import read_value

NO_OFFSET: Final = -1
_BY_NAME_VERSION_MAX: Final = 9
"""The last version of OffsetCommit and OffsetFetch with topic names; later versions have topic ids."""
DEAD: Final = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    group: str
    state: str
    kind: str
    """Type of the group: `consumer`, `share` or `classic`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetail:
    group: str
    state: str
    kind: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    offset: int
    metadata: str


class Groups:
    """Administration of consumer, share and classic groups."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    async def list(self, states: Collection[str] = (), kinds: Collection[str] = ()) -> "list[GroupListing]":
        """Returns the groups of the cluster, sorted by name; only those with these states and kinds, if given."""
        await self._client.refresh()
        found = []
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(kinds))
        for node_id in self._client.view.brokers:
            response: ListGroupsResponse = await self._client.request_checked(node_id, request, "the groups")
            for group in response.groups:
                kind = group.group_type.lower() or "classic"
                found.append(GroupListing(group=group.group_id, state=group.group_state, kind=kind))
        return sorted(found, key=lambda group: group.group)

    async def coordinator(self, group: str) -> int:
        """Returns the node id of a group's coordinator."""
        return await self._client.coordinator(group, CoordinatorKey.GROUP, f"group {group!r}")

    async def describe(self, group: str) -> GroupDetail:
        """Returns a group with its members. Raises ServerError (GROUP_ID_NOT_FOUND) if the group does not exist."""

        async def attempt() -> GroupDetail:
            node_id = await self.coordinator(group)
            consumer = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
            share = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
            return (
                await self._describe(consumer, f"group {group!r}", "consumer", node_id)
                or await self._describe(share, f"share group {group!r}", "share", node_id)
                or await self._describe_classic(group, node_id)
            )

        return await self._client.retrying(attempt)

    async def _describe(
        self, request: ConsumerGroupDescribeRequest | ShareGroupDescribeRequest, what: str, kind: str, node_id: int
    ) -> GroupDetail | None:
        """Sends `request` to broker `node_id`. Returns the group, with `kind` as its type; None if it does not
        exist, or is of another type. `what`: the name of the group in error messages."""
        try:
            response: ConsumerGroupDescribeResponse | ShareGroupDescribeResponse
            response = await self._client.request(node_id, request)
        except UnsupportedByBroker:
            return None
        (found,) = response.groups
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        check(found.error_code, what, found.error_message)
        return GroupDetail(
            group=found.group_id,
            state=found.group_state,
            kind=kind,
            assignor=found.assignor_name,
            coordinator=node_id,
            members=tuple(
                GroupMember(
                    member_id=member.member_id,
                    instance_id=member.instance_id if isinstance(member, ConsumerMember) else None,
                    client_id=member.client_id,
                    host=member.client_host,
                    partitions=_partitions(member.assignment),
                )
                for member in found.members
            ),
        )

    async def share_offsets(self, group: str) -> dict[TopicPartition, ShareOffset]:
        """Returns the share-partition start offset and lag of each partition that a share group has read."""

        async def attempt() -> dict[TopicPartition, ShareOffset]:
            return await share_group_offsets(self._client, group, await self.coordinator(group))

        return await self._client.retrying(attempt)

    async def _describe_classic(self, group: str, node_id: int) -> GroupDetail:
        response: DescribeGroupsResponse = await self._client.request(node_id, DescribeGroupsRequest(groups=[group]))
        (found,) = response.groups
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (not found.error_code and found.group_state == DEAD):
            raise unknown_group(group)
        check(found.error_code, f"group {group!r}", found.error_message)
        return GroupDetail(
            group=group,
            state=found.group_state,
            kind="classic",
            assignor=found.protocol_data,
            coordinator=node_id,
            members=tuple(
                GroupMember(
                    member_id=member.member_id,
                    instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    host=member.client_host,
                    partitions=_assigned(member.member_assignment),
                )
                for member in found.members
            ),
        )

    async def offsets(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """Returns all committed offsets of a group."""

        async def attempt() -> dict[TopicPartition, CommittedOffset]:
            connection = await self._client.connection(await self.coordinator(group))
            request = OffsetFetchRequest(
                group_id=group, topics=None, groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]
            )
            response: OffsetFetchResponse = await connection.request(request, version_max=_BY_NAME_VERSION_MAX)
            code = response.groups[0].error_code if response.groups else response.error_code
            check(code, f"the offsets of group {group!r}")
            topics = response.groups[0].topics if response.groups else response.topics
            return {
                TopicPartition(topic.name, entry.partition_index): CommittedOffset(
                    offset=entry.committed_offset, metadata=entry.metadata or ""
                )
                for topic in topics
                for entry in topic.partitions
                if entry.committed_offset != NO_OFFSET
            }

        return await self._client.retrying(attempt)

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits offsets for a group. Raises ServerError (NON_EMPTY_GROUP) if the group has members."""

        async def attempt() -> None:
            connection = await self._client.connection(await self.coordinator(group))
            request = OffsetCommitRequest(group_id=group, member_id="", topics=_commits(offsets))
            response: OffsetCommitResponse = await connection.request(request, version_max=_BY_NAME_VERSION_MAX)
            for topic in response.topics:
                for entry in topic.partitions:
                    where = f"partition {topic.name}-{entry.partition_index} of group {group!r}"
                    if entry.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS):
                        raise busy_group(group)
                    check(entry.error_code, where)

        await self._client.retrying(attempt)

    async def delete(self, group: str) -> None:
        """Deletes a group without members, with its committed offsets."""

        async def attempt() -> None:
            node_id = await self.coordinator(group)
            response: DeleteGroupsResponse = await self._client.request(
                node_id, DeleteGroupsRequest(groups_names=[group])
            )
            (result,) = response.results
            if result.error_code == ErrorCode.NON_EMPTY_GROUP:
                raise busy_group(group)
            if result.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                raise unknown_group(group)
            check(result.error_code, f"group {group!r}")

        await self._client.retrying(attempt)


def _partitions(
    assignment: consumer_group_describe.Assignment | share_group_describe.Assignment,
) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Decodes the partitions assigned to a classic member; returns () for another format, such as Kafka Connect's."""
    try:
        read = read_value(ConsumerProtocolAssignment, assignment)
    except MalformedRequest:
        return ()
    return tuple(
        TopicPartition(topic.topic, number) for topic in read.assigned_partitions for number in topic.partitions
    )


def _commits(offsets: Mapping[TopicPartition, int]) -> list[OffsetCommitRequestTopic]:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for tp, offset in offsets.items():
        topics.setdefault(tp.topic, []).append(
            OffsetCommitRequestPartition(partition_index=tp.partition, committed_offset=offset, committed_metadata="")
        )
    return [OffsetCommitRequestTopic(name=topic, partitions=entries) for topic, entries in topics.items()]


def unknown_group(group: str) -> ServerError:
    return refusal(
        ErrorCode.GROUP_ID_NOT_FOUND, group, f"there is no group {group!r}; `penstock group list` lists the groups"
    )


def busy_group(group: str) -> ServerError:
    return refusal(
        ErrorCode.NON_EMPTY_GROUP,
        group,
        f"group {group!r} has members; stop its consumers first (`penstock group describe {group}` names them)",
    )
