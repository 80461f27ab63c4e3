"""Commands and effects of the group coordinator: topic changes, share-group delivery state, streams topics."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.foundation.decision import Ticket
from penstock.groups.streams.topology import InternalTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChanged:
    """Command: tells the coordinator that it has a new metadata image."""

    deleted: frozenset[str]
    """Names of topics that were deleted. A topic of the same name with another id may exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOffsets:
    """Command: removes part of the committed offsets of a group with very many offsets, before the group is deleted.

    The reply is the number of removed offsets; 0 if DeleteGroups can remove the rest. Has the errors of DeleteGroups.
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
    """Command: finds the topics in which a share group has delivery state. The reply is topic names by topic id."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddDeliveryState:
    """Command: records that a share group without members will have delivery state in these topics; creates the
    group if it does not exist. The reply is None. Raises NonEmptyGroup."""

    group_id: str
    topics: Mapping[bytes, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteDeliveryState:
    """Command: deletes the delivery state of a share group without members in these topics. The reply is None."""

    group_id: str
    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryStateDeleted:
    """Command: reports that all partition leaders have deleted the delivery state named in DeleteStateAtLeaders."""

    group_id: str
    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddCompanionLogs:
    """Effect: the broker adds companion logs, which store delivery state, to topics. Repeated until they exist."""

    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteStateAtLeaders:
    """Effect: leaders delete a share group's delivery state. Repeated until DeliveryStateDeleted is received."""

    group_id: str
    topic_ids: frozenset[bytes]


# -- streams groups, which need internal topics


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateStreamsTopics:
    """Effect: the broker creates the internal topics of a streams group. Repeated until the topics exist."""

    group_id: str
    topics: tuple[InternalTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsTopicsRefused:
    """Command: reports that some or all topics of CreateStreamsTopics could not be created."""

    group_id: str
    reason: str
