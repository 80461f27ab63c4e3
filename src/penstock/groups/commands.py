"""What the coordinator of groups is told, besides an Ask with a request of one of the group APIs, and what it wants
done."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.foundation.decision import Ticket
from penstock.groups.streams.topology import InternalTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChanged:
    """The image that the coordinator holds is a new one."""

    deleted: frozenset[str]
    """Names of topics that are gone, and maybe there again under other ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOffsets:
    """A group is about to be deleted that has very many offsets: some of them go now.

    The reply is how many do; 0 if the rest can go with the group. Raises what DeleteGroups answers.
    """

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HungUp:
    """Someone who waits has closed its connection: nobody would hear the answer."""

    group_id: str
    ticket: Ticket


# -- share groups, whose delivery state is with the leaders of partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class FindDelivery:
    """Where has a share group delivery state? The reply is a dict of its topics' names by their ids."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteDelivery:
    """A share group is about to have delivery state in these topics; it may be a new one, and has no members.

    The reply is None. Raises NonEmptyGroup.
    """

    group_id: str
    topics: Mapping[bytes, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDelivery:
    """The delivery state that a share group without members has in these topics is to go. The reply is None."""

    group_id: str
    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryDropped:
    """What DropAtLeaders asked for is done."""

    group_id: str
    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddCompanions:
    """An effect: these topics need companion logs, in which delivery state is kept. It is said until they have."""

    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropAtLeaders:
    """An effect: have the leaders of all partitions forget a group, then DeliveryDropped. It is said until that."""

    group_id: str
    topic_ids: frozenset[bytes]


# -- streams groups, which need topics of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateStreamsTopics:
    """An effect: a streams group needs these topics. It is repeated until they exist."""

    group_id: str
    topics: tuple[InternalTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsTopicsRefused:
    """What CreateStreamsTopics asked for could not be done, at least in part."""

    group_id: str
    reason: str
