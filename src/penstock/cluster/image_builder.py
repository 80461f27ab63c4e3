"""Builds the next metadata image from the previous image and a change of the store (MetadataDelta). Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from penstock.cluster import keys
from penstock.cluster.access_keys import read_keys
from penstock.cluster.acls import read_acls
from penstock.cluster.delegation_tokens import DelegationToken
from penstock.cluster.image_parts import (
    COUNT_UNKNOWN,
    EMPTY,
    NOTHING_INCOMPLETE,
    Broker,
    Controller,
    IncompleteTopic,
    Topic,
)
from penstock.cluster.partition_state import PartitionState
from penstock.cluster.queues import MoveTask, Queue
from penstock.cluster.users import User
from penstock.cluster.views import View
from penstock.coordination.store import Versioned

SLICE_KEYS: Final = 1000
"""Number of changed keys applied per time slice, which takes at most about 5 ms."""


class Image(Protocol):
    """The parts of a metadata image that ImageDraft reads."""

    @property
    def topics(self) -> Mapping[bytes, Topic]: ...
    @property
    def by_name(self) -> Mapping[str, Topic]: ...
    @property
    def incomplete(self) -> Mapping[bytes, IncompleteTopic]: ...
    @property
    def drained(self) -> frozenset[int]: ...


class ImageDraft:
    """A metadata image being built from the previous one. Copies a mapping, such as `topics`, at its first change."""

    def __init__(self, base: Image, before: Image) -> None:
        self._base = base
        self._before = before
        """The last published image."""
        self._changed: dict[str, Any] = {}
        self._headers: dict[bytes, Topic | None] = {}
        self._partitions: dict[bytes, dict[int, PartitionState]] = {}
        self._reshaped: set[bytes] = set()
        """Ids of topics that may have been created or deleted, or may have another set of partitions."""

    def _table(self, name: str) -> dict[Any, Any]:
        """Returns the draft's own copy of the image's mapping `name`, such as `topics`, for the caller to modify."""
        found = self._changed.get(name)
        if found is None:
            found = self._changed[name] = dict(getattr(self._base, name))
        return found

    def _put(self, name: str, key: Any, value: Any) -> None:
        if value is not None:
            self._table(name)[key] = value
        elif key in self._changed.get(name, getattr(self._base, name)):
            del self._table(name)[key]

    def apply(self, key: str, state: Versioned | None) -> None:
        prefix, _, rest = key.partition("/")
        if prefix == keys.PARTITIONS:
            self._partition(rest, state)
        elif prefix == keys.TOPICS:
            self._topic(keys.topic_id_of(rest), state)
        else:
            self._put("versions", key, state.version if state else None)
            self._other(prefix, rest, keys.decode(state.value) if state else None)

    def _other(self, prefix: str, rest: str, value: Any) -> None:
        match prefix:
            case keys.CLUSTER:
                self._changed["cluster_id"] = value["cluster_id"] if value else ""
            case keys.BROKERS:
                self._put("brokers", int(rest), value and Broker.read(int(rest), value))
            case keys.FOLDERS:
                self._put("folders", int(rest), value)
            case keys.DRAINED:
                drained = self._changed.get("drained", self._base.drained)
                self._changed["drained"] = drained - {int(rest)} if value is None else drained | {int(rest)}
            case keys.UNFINISHED:
                self._put("unfinished", keys.topic_id_of(rest), value)
            case keys.BROKER_CONFIGS:
                self._put("broker_configs", rest, value)
            case keys.GROUP_CONFIGS:
                self._put("group_configs", keys.plain_name_of(rest), value)
            case keys.CLIENT_METRICS:
                self._put("client_metrics", keys.plain_name_of(rest), value)
            case keys.QUEUES:
                self._put("queues", rest, value and Queue.read(rest, value))
            case keys.USERS:
                name = keys.plain_name_of(rest)
                self._put("users", name, value and User.read(name, value))
            case keys.ACCESS_KEYS:
                name = keys.plain_name_of(rest)
                self._put("access_keys", name, value and read_keys(name, value))
            case keys.ACLS:
                self._put("acls", keys.pattern_of(rest), value and read_acls(value))
            case keys.CLIENT_QUOTAS:
                self._put("client_quotas", keys.entity_of(rest), value)
            case keys.DELEGATION_TOKENS:
                self._put("delegation_tokens", rest, value and DelegationToken.read(rest, value))
            case keys.LOGIN_SECRET:
                self._changed["login_secret"] = value or ""
            case keys.VIEWS:
                view_id = keys.topic_id_of(rest)
                self._put("views", view_id, value and View.read(view_id, value))
            case keys.QUEUE_MOVES:
                self._put("queue_moves", rest, value and tuple(map(MoveTask.read, value)))
            case keys.CONTROLLER:
                self._changed["controller"] = value and Controller(**value)
            case keys.CONTROLLER_EPOCH:
                self._changed["controller_epoch"] = value or 0

    def _topic(self, topic_id: bytes, state: Versioned | None) -> None:
        known = self._header(topic_id)
        found = Topic.read(topic_id, keys.decode(state.value), state.version) if state else None
        if found is None or known is None or (found.count, found.name) != (known.count, known.name):
            self._reshaped.add(topic_id)
        if topic_id in self._base.incomplete:
            self._reshaped.add(topic_id)
        self._headers[topic_id] = found

    def _header(self, topic_id: bytes) -> Topic | None:
        if topic_id in self._headers:
            return self._headers[topic_id]
        incomplete = self._base.incomplete.get(topic_id)
        return self._base.topics.get(topic_id) or (incomplete.topic if incomplete else None)

    def _partition(self, rest: str, state: Versioned | None) -> None:
        name, _, text = rest.partition("/")
        topic_id, number = keys.topic_id_of(name), int(text)
        table = self._partitions.get(topic_id)
        if table is None:
            table = self._partitions[topic_id] = self._partitions_before(topic_id)
        if state is None or number not in table:
            self._reshaped.add(topic_id)
        if state is None:
            table.pop(number, None)
        else:
            table[number] = PartitionState.read(keys.decode(state.value), state.version)

    def _partitions_before(self, topic_id: bytes) -> dict[int, PartitionState]:
        shown, incomplete = self._base.topics.get(topic_id), self._base.incomplete.get(topic_id)
        table = dict(shown.partitions) if shown else {}
        if incomplete is not None:
            for number in incomplete.missing:
                del table[number]
            table |= incomplete.partitions
            self._reshaped.add(topic_id)
        return table

    def finish_topics(self) -> Iterator[None]:
        """Builds the changed topics from their keys and those of their partitions; yields between time slices."""
        keys_seen = 0
        for topic_id in self.topic_ids():
            if topic_id in self._reshaped:
                self._reshape(topic_id)
            else:
                self._refill(topic_id)
            keys_seen += 1 + len(self._partitions.get(topic_id, ()))
            if keys_seen >= SLICE_KEYS:
                keys_seen = 0
                yield

    def topic_ids(self) -> Iterable[bytes]:
        """Returns the ids of the topics whose own keys, or keys of their partitions, have changed."""
        return dict.fromkeys((*self._headers, *self._partitions))

    def changes(self) -> dict[str, Any]:
        """Returns the changed fields of the image by name, such as `topics`; call it after `finish_topics`."""
        return self._changed

    def _refill(self, topic_id: bytes) -> None:
        """Updates the settings and partition states of a topic whose set of partitions is unchanged."""
        shown, partitions = self._base.topics[topic_id], self._partitions.get(topic_id)
        header = self._header(topic_id) or shown
        self._show(replace(header, partitions=shown.partitions if partitions is None else partitions))

    def _reshape(self, topic_id: bytes) -> None:
        """Updates which partitions of a topic the image shows (see `_shown`). Other stored keys of the topic, from
        a change that is only partly written, go into `incomplete`."""
        header, before = self._header(topic_id), self._before.topics.get(topic_id)
        found = self._partitions.get(topic_id)
        table = self._partitions_before(topic_id) if found is None else found
        shown = _shown(header, table, before.partitions if before else EMPTY)
        rest = {number: table[number] for number in sorted(table.keys() - shown.keys())}
        if topic_id in self._base.topics:
            self._hide(self._base.topics[topic_id])
        if header is not None and shown:
            self._show(replace(header, partitions=shown))
            header = None
        rest_of_topic = IncompleteTopic(
            topic=header and replace(header, partitions=EMPTY),
            partitions=rest,
            missing=frozenset(shown.keys() - table.keys()),
        )
        self._put("incomplete", topic_id, rest_of_topic if rest_of_topic != NOTHING_INCOMPLETE else None)

    def _show(self, topic: Topic) -> None:
        self._put("topics", topic.topic_id, topic)
        self._put("by_name", topic.name, topic)

    def _hide(self, topic: Topic) -> None:
        self._put("topics", topic.topic_id, None)
        named = self._changed.get("by_name", self._base.by_name).get(topic.name)
        if named is not None and named.topic_id == topic.topic_id:
            topics, others = self._table("topics"), []
            if len(topics) >= len(self._changed.get("by_name", self._base.by_name)):  # two topics have one name
                others = [other for other in topics.values() if other.name == topic.name]
            self._put("by_name", topic.name, others[-1] if others else None)


def shown_view(view: View, source: Topic) -> Topic:
    """Returns a view (filtered virtual topic) as a Topic, with the partitions of its source topic."""
    return Topic(
        topic_id=view.view_id,
        name=view.name,
        configs=view.configs(),
        partitions=source.partitions,
        count=source.count,
        view=view,
    )


def _shown(
    topic: Topic | None, table: Mapping[int, PartitionState], before: Mapping[int, PartitionState]
) -> dict[int, PartitionState]:
    """Returns the partitions of a topic that the image shows; none if the topic is deleted (None). If `table` (the
    stored partitions) has all `topic.count` partitions, returns these. Else returns the partitions of `before`
    (the last published image), until a later change adds the missing keys."""
    if topic is None:
        return {}
    count = len(table) if topic.count == COUNT_UNKNOWN else topic.count
    if all(number in table for number in range(count)):
        return {number: table[number] for number in range(count)}
    return {number: table.get(number, before[number]) for number in range(min(count, len(before)))}
