"""Commands and effects of the group coordinator: topic changes, delivery state, internal topics of streams."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.foundation.decision import Ticket
from penstock.groups.streams.topology import InternalTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChanged:
    """The coordinator has a new metadata image."""

    deleted: frozenset[str]
    """Names of topics that were deleted, and possibly created again with another id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOffsets:
    """Removes some of the committed offsets of a group with very many offsets, before the group is deleted.

    The reply is their number; 0 if the rest can be removed with the group. Raises the errors of DeleteGroups.
    """

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDisconnected:
    """A client has closed its connection while its JoinGroup or SyncGroup was waiting."""

    group_id: str
    ticket: Ticket


# -- share groups, whose delivery state is stored by partition leaders


@dataclass(frozen=True, slots=True, kw_only=True)
class FindDeliveryState:
    """Asks for the topics in which a share group has delivery state. The reply is a dict of names by topic id."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddDeliveryState:
    """Records that a share group without members is about to have delivery state in these topics; creates the
    group if it does not exist. The reply is None. Raises NonEmptyGroup."""

    group_id: str
    topics: Mapping[bytes, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteDeliveryState:
    """Deletes the delivery state of a share group without members in these topics. The reply is None."""

    group_id: str
    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryStateDeleted:
    """The partition leaders have carried out DeleteStateAtLeaders."""

    group_id: str
    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddCompanionLogs:
    """An effect: add companion logs for delivery state to these topics. Repeated until they exist."""

    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteStateAtLeaders:
    """An effect, repeated until DeliveryStateDeleted: have all leaders delete a group's delivery state."""

    group_id: str
    topic_ids: frozenset[bytes]


# -- streams groups, which need internal topics


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateStreamsTopics:
    """An effect: create the internal topics of a streams group. Repeated until they exist."""

    group_id: str
    topics: tuple[InternalTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsTopicsRefused:
    """Topics of CreateStreamsTopics could not be created, at least in part."""

    group_id: str
    reason: str
