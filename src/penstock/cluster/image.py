"""The metadata image (MetadataImage): an immutable copy of all cluster metadata, built from the store. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.cluster.access_keys import UserKeys
from penstock.cluster.acls import Acls
from penstock.cluster.client_quotas import Quotas
from penstock.cluster.delegation_tokens import DelegationToken
from penstock.cluster.image_builder import SLICE_KEYS as SLICE_KEYS
from penstock.cluster.image_builder import ImageDraft, shown_view
from penstock.cluster.image_parts import COUNT_UNKNOWN as COUNT_UNKNOWN
from penstock.cluster.image_parts import EMPTY as EMPTY
from penstock.cluster.image_parts import NO_BROKER as NO_BROKER
from penstock.cluster.image_parts import Broker as Broker
from penstock.cluster.image_parts import Controller as Controller
from penstock.cluster.image_parts import IncompleteTopic as IncompleteTopic
from penstock.cluster.image_parts import Topic as Topic
from penstock.cluster.partition_state import NO_EPOCH as NO_EPOCH
from penstock.cluster.partition_state import NO_LEADER as NO_LEADER
from penstock.cluster.partition_state import PartitionEntry as PartitionEntry
from penstock.cluster.partition_state import PartitionState as PartitionState
from penstock.cluster.queues import MoveTask, Queue
from penstock.cluster.users import User
from penstock.cluster.views import View
from penstock.coordination.store import ABSENT, Change
from penstock.foundation.ids import TopicIdPartition
from penstock.foundation.steps import Steps, run_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDelta:
    """The ids of all topics that differ between two successive `ClusterImage.topics`; maybe of others, too."""

    before: Mapping[bytes, Topic]
    after: Mapping[bytes, Topic]
    topic_ids: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """The cluster metadata at one revision of the store. It contains a topic once all its partitions exist."""

    revision: int = 0
    cluster_id: str = ""
    brokers: Mapping[int, Broker] = field(default_factory=lambda: EMPTY)
    folders: Mapping[int, str] = field(default_factory=lambda: EMPTY)
    drained: frozenset[int] = frozenset()
    controller: Controller | None = None
    controller_epoch: int = 0
    topics: Mapping[bytes, Topic] = field(default_factory=lambda: EMPTY)
    by_name: Mapping[str, Topic] = field(default_factory=lambda: EMPTY)
    incomplete: Mapping[bytes, IncompleteTopic] = field(default_factory=lambda: EMPTY)
    """Topics that are partly created or partly deleted, by topic id."""
    unfinished: Mapping[bytes, str] = field(default_factory=lambda: EMPTY)
    """Tokens of the requests that are creating partitions in several transactions, by topic id."""
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: EMPTY)
    """Dynamic broker settings, by node id as text; the key "" holds the cluster-wide settings."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: EMPTY)
    """Dynamic settings of consumer and share groups, by group id."""
    client_metrics: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: EMPTY)
    """Client metrics subscriptions (KIP-714), by name."""
    queues: Mapping[str, Queue] = field(default_factory=lambda: EMPTY)
    """Queues by name, maybe also queues of deleted topics, which count as deleted: see cluster/queue_changes.py."""
    queue_moves: Mapping[str, tuple[MoveTask, ...]] = field(default_factory=lambda: EMPTY)
    """Message move tasks by name of their source queue, the newest task first."""
    views: Mapping[bytes, View] = field(default_factory=lambda: EMPTY)
    """Views (filtered virtual topics) by id, maybe also views of deleted topics, which count as deleted."""
    users: Mapping[str, User] = field(default_factory=lambda: EMPTY)
    """Users with their credentials, by name."""
    access_keys: Mapping[str, UserKeys] = field(default_factory=lambda: EMPTY)
    """Access keys by the name of their user, which need not have other credentials."""
    acls: Acls = field(default_factory=lambda: EMPTY)
    """All ACLs, by resource pattern."""
    client_quotas: Quotas = field(default_factory=lambda: EMPTY)
    """Quotas of users, client ids and addresses."""
    delegation_tokens: Mapping[str, DelegationToken] = field(default_factory=lambda: EMPTY)
    """Delegation tokens by id, maybe also expired ones."""
    login_secret: str = field(default="", repr=False)
    """The secret of made-up salts (keys.LOGIN_SECRET); empty until a broker with a SASL listener has created it."""
    versions: Mapping[str, int] = field(default_factory=lambda: EMPTY)
    """Store versions of all keys that do not belong to a topic."""
    topic_delta: TopicDelta | None = field(default=None, repr=False, compare=False)
    shown: Mapping[bytes, Topic] = field(init=False)
    """Topics and views (filtered virtual topics) that clients can read, by id; `topics` contains no views."""
    shown_by_name: Mapping[str, Topic] = field(init=False)

    def __post_init__(self) -> None:
        shown, by_name = self.topics, self.by_name
        if self.views:
            found = [shown_view(view, self.topics[view.topic_id]) for view in self._views_with_topics()]
            shown = {**shown, **{topic.topic_id: topic for topic in found}}
            by_name = {**by_name, **{topic.name: topic for topic in found}}
        object.__setattr__(self, "shown", shown)
        object.__setattr__(self, "shown_by_name", by_name)

    def _views_with_topics(self) -> Iterator[View]:
        return (view for view in self.views.values() if view.topic_id in self.topics)

    def listed_by_name(self) -> Mapping[str, Topic]:
        """Returns the topics and views (filtered topics) that clients list, by name, except views for one reader."""
        if not self.views:
            return self.by_name
        return {
            name: topic
            for name, topic in self.shown_by_name.items()
            if topic.view is None or not topic.view.is_ad_hoc
        }

    def with_change(self, change: Change) -> "ClusterImage":
        """Returns the image after a change of the store. Unchanged parts are shared between both images."""
        return run_steps(self.change_steps(change))

    def change_steps(self, change: Change) -> "Steps[ClusterImage]":
        """Same as `with_change`, but yields after every SLICE_KEYS keys: a large snapshot takes many time slices."""
        base = ClusterImage() if change.snapshot else self
        draft = ImageDraft(base, self)
        for number, (key, state) in enumerate(change.states.items(), 1):
            draft.apply(key, state)
            if number % SLICE_KEYS == 0:
                yield
        yield from draft.finish_topics()
        changes = draft.changes()
        if "topics" in changes:
            changes["topic_delta"] = TopicDelta(
                before=base.topics, after=changes["topics"], topic_ids=tuple(draft.topic_ids())
            )
        return replace(base, revision=change.revision, **changes)

    def changed_topics(self, since: Mapping[bytes, Topic]) -> Sequence[bytes]:
        """Returns the ids of topics that were created, changed or deleted since an image whose `topics` was `since`.
        If `since` is the `topics` of the previous image, the cost depends only on the number of changed topics."""
        delta, topics = self.topic_delta, self.topics
        if since is topics:
            return ()
        if delta is not None and since is delta.before and topics is delta.after:
            return delta.topic_ids
        deleted = [topic_id for topic_id in since if topic_id not in topics]
        return deleted + [topic_id for topic_id, topic in topics.items() if since.get(topic_id) is not topic]

    def state(self, tp: TopicIdPartition) -> PartitionState | None:
        topic = self.topics.get(tp.topic_id)
        return topic.partitions.get(tp.partition) if topic is not None else None

    def version(self, key: str) -> int:
        """Returns the store version of a key that does not belong to a topic; ABSENT if the key does not exist."""
        return self.versions.get(key, ABSENT)

    @property
    def controller_id(self) -> int:
        return self.controller.node_id if self.controller is not None else NO_BROKER

    def find_partitions(self, which: Callable[[PartitionState], object] | None = None) -> Iterator[PartitionEntry]:
        """Yields the partitions whose state matches `which`, or all partitions if `which` is None."""
        for topic_id, topic in self.topics.items():
            for number, state in topic.partitions.items():
                if which is None or which(state):
                    yield TopicIdPartition(topic_id, number), state

    def led_by(self, node_id: int) -> Iterator[PartitionEntry]:
        return self.find_partitions(lambda state: state.leader == node_id)

    def held_by(self, node_id: int) -> Iterator[PartitionEntry]:
        """Yields the partitions that have a replica on a broker."""
        return self.find_partitions(lambda state: node_id in state.replicas)

    def offline(self) -> Iterator[PartitionEntry]:
        """Yields the partitions that have no leader, or whose leader is not registered."""
        return self.find_partitions(lambda state: state.leader not in self.brokers)

    def under_replicated(self) -> Iterator[PartitionEntry]:
        return self.find_partitions(lambda state: state.is_under_replicated)

    def eligible(self) -> dict[int, int]:
        """Returns the broker epochs of the brokers that may join an ISR, by node id."""
        return {node: broker.epoch for node, broker in self.brokers.items() if not broker.leaving}

    def may_stop(self, node_id: int) -> bool:
        """Whether a broker's controlled shutdown is complete: it has left every ISR in which another member could
        become leader."""
        able = {node for node, broker in self.brokers.items() if not broker.leaving} - {node_id}
        counted = self.find_partitions(lambda state: node_id in state.isr and not able.isdisjoint(state.isr))
        return next(counted, None) is None
