"""Commands to the group coordinator, and effects: actions that it asks the broker to carry out."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.foundation.decision import Ticket
from penstock.groups.streams.topology import InternalTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChanged:
    """Command: tells the group coordinator that its metadata image was replaced by a newer one."""

    deleted: frozenset[str]
    """Names of topics that were deleted. A topic with the same name may have been created since; it has another topic
    id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOffsets:
    """Command: removes a part of a group's committed offsets, so that the rest fits into the record batch of
    DeleteGroups.

    The broker sends it before DeleteGroups and repeats it until the reply, the number of removed offsets, is 0.
    Raises the same errors as DeleteGroups.
    """

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDisconnected:
    """Command: tells the coordinator that a client has disconnected while its JoinGroup or SyncGroup was waiting."""

    group_id: str
    ticket: Ticket


# -- share groups, whose delivery state is stored by partition leaders


@dataclass(frozen=True, slots=True, kw_only=True)
class FindDeliveryState:
    """Command: finds the topics in which a share group has delivery state (which messages are in flight or
    acknowledged; stored by the partition leaders). The reply is topic names by topic id."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddDeliveryState:
    """Command: records that a share group will have delivery state (which messages are in flight or acknowledged) in
    `topics`; creates the group if it does not exist. The reply is None. Raises NonEmptyGroup if the group has
    members."""

    group_id: str
    topics: Mapping[bytes, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteDeliveryState:
    """Command: deletes the delivery state (which messages are in flight or acknowledged) that a share group without
    members has in `topic_ids`. The reply is None."""

    group_id: str
    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryStateDeleted:
    """Command: reports that all partition leaders have done what the effect DeleteStateAtLeaders asked for: they have
    deleted the share group's delivery state in `topic_ids`."""

    group_id: str
    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddCompanionLogs:
    """Effect: the broker creates companion logs, the second logs of partitions, which store the delivery state of
    share groups. Sent again until all of them exist."""

    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteStateAtLeaders:
    """Effect: partition leaders delete a share group's delivery state. DeliveryStateDeleted reports completion."""

    group_id: str
    topic_ids: frozenset[bytes]


# -- streams groups, which need internal topics


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateStreamsTopics:
    """Effect: the broker creates the internal topics of a streams group. Sent again until the topics exist."""

    group_id: str
    topics: tuple[InternalTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsTopicsRefused:
    """Command: reports that some or all topics of CreateStreamsTopics could not be created."""

    group_id: str
    reason: str
