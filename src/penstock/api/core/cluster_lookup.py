"""Cluster lookups over the admin client: topics, partitions, configs, offsets, start positions, group offsets."""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from penstock.api.core.encoding import time_ms
from penstock.api.core.settings import Settings, admin_config
from penstock.api.errors import (
    ApiError,
    Busy,
    InvalidArgument,
    NotConnected,
    SubscribeFailed,
    UnknownTopic,
    code_of,
    explain,
    kafka_error,
    speaks_http,
    unreachable_message,
    why_unreachable,
)
from penstock.client.http import Endpoint
from penstock.client.http_addresses import ADVERTISED_HTTP
from penstock.client.offsets import LogRange, Origin, Start, start_offsets
from penstock.client.sqs import endpoints_of
from penstock.foundation.clock import Clock
from penstock.foundation.errors import OffsetOutOfRange
from penstock.foundation.ids import TopicPartition

T = TypeVar("T")

From = Literal["earliest", "latest"] | datetime | int
"""Start position: "earliest", "latest", a time, an offset, or -N for the last N messages of each partition."""
Missing = Literal["error", "wait", "create"]
"""Action of a subscription if a topic does not exist: raise an error, wait for the topic, or create it."""
Topics = str | Iterable[str] | re.Pattern[str]
"""A topic name, several names, or a pattern that must match whole names. A str that begins with ^ is a pattern."""
TOPIC_WAIT_S: Final = 2.0
"""Maximum wait, in seconds, for a topic that was just created and is still unknown to the broker."""
POLL_S: Final = 0.05
FIRST_TRY_S: Final = 0.5
"""Seconds without a response after which `check` tests whether the server speaks HTTP instead of Kafka."""
_TOPIC_CREATING_CODES: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE})
_COORDINATOR_LOADING_CODES: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
INTERNAL: Final = "__"
"""Name prefix of internal topics. Patterns do not match internal topics."""


def start_of(from_: From) -> Start:
    """Returns the start position for a `from_` argument. Raises InvalidArgument if it is not a valid position.

    >>> start_of(-5)
    Start(origin=<Origin.BACK: 'back'>, value=5)
    """
    if isinstance(from_, datetime):
        return Start(Origin.TIME, time_ms(from_, "from_"))
    if isinstance(from_, int) and not isinstance(from_, bool):
        return Start(Origin.OFFSET, from_) if from_ >= 0 else Start(Origin.BACK, -from_)
    if from_ == "earliest":
        return Start(Origin.EARLIEST)
    if from_ == "latest":
        return Start(Origin.LATEST)
    raise InvalidArgument(
        f"from_={from_!r} is not a position; give 'earliest', 'latest', a datetime, an offset, or -N for the last N"
    )


class TopicSelection:
    r"""The topics of a subscription, by name or pattern.

    >>> TopicSelection(re.compile(r"orders-\d+")).matches("orders-7")
    True
    """

    def __init__(self, topics: Topics) -> None:
        self.pattern: re.Pattern[str] | None = None
        self.names: tuple[str, ...] = ()
        if isinstance(topics, re.Pattern):
            self.pattern = topics
        elif isinstance(topics, str) and topics.startswith("^"):
            try:
                self.pattern = re.compile(topics)
            except re.error as error:
                raise InvalidArgument(f"{topics!r} is not a regular expression: {error}") from error
        else:
            self.names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
            if not self.names or not all(isinstance(name, str) and name for name in self.names):
                raise InvalidArgument(f"{topics!r} names no topics; give a name, several, or a regular expression")

    def matches(self, name: str) -> bool:
        if self.pattern is None:
            return name in self.names
        return not name.startswith(INTERNAL) and self.pattern.fullmatch(name) is not None

    def __str__(self) -> str:
        return f"topics like {self.pattern.pattern!r}" if self.pattern else ", ".join(map(repr, self.names))


class ClusterLookup:
    """Requests to a cluster over librdkafka's admin client. Thread-safe."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        try:
            self._admin = AdminClient(admin_config(settings))
        except KafkaException as error:
            raise explain(kafka_error(error), "connecting", InvalidArgument) from error

    def check(self) -> None:
        """Raises NotConnected, with the reason, unless a broker answers."""
        servers, timeout_s = self._settings.servers, self._settings.timeout_s
        try:
            with suppress(KafkaException):
                self._admin.list_topics(timeout=min(FIRST_TRY_S, timeout_s))
                return
            if address := speaks_http(servers):  # librdkafka would retry until the timeout
                raise NotConnected(
                    f"{address} speaks HTTP, not the Kafka protocol; give the port of Kafka clients (9092, unless "
                    "`penstock serve --listen` sets another)"
                )
            self._admin.list_topics(timeout=timeout_s)
        except KafkaException as error:
            reason = why_unreachable(servers)
            if reason:
                raise NotConnected(unreachable_message(servers, reason)) from error
            raise NotConnected(
                f"a server listens at {servers}, but does not answer as a broker; give a longer timeout_s, or check "
                "security.protocol and the sasl.* and ssl.* options",
                code_of(kafka_error(error)),
            ) from error

    def topics(self, selection: TopicSelection) -> list[str]:
        """Returns the topic names of the selection or, for a pattern, the existing topics that match."""
        if selection.pattern is None:
            return list(selection.names)
        found = self._call(lambda: self._admin.list_topics(timeout=self._settings.timeout_s), "looking for topics")
        return sorted(name for name in found.topics if selection.matches(name))

    def require(self, topics: Collection[str]) -> None:
        """Raises UnknownTopic unless all of these topics exist. Does not create topics."""
        deadline_s = self._clock.monotonic_s() + min(TOPIC_WAIT_S, self._settings.timeout_s / 2)
        while absent := sorted(set(topics) - self.existing(topics)):
            if self._clock.monotonic_s() >= deadline_s:
                raise self._unknown(absent[0])
            time.sleep(POLL_S)

    def _unknown(self, topic: str) -> UnknownTopic:
        found = self._call(lambda: self._admin.list_topics(timeout=self._settings.timeout_s), "looking for topics")
        similar = get_close_matches(topic, [name for name in found.topics if not name.startswith(INTERNAL)], 1)
        suggestion = f" (there is {similar[0]!r})" if similar else ""
        return UnknownTopic(
            f"topic {topic!r} does not exist{suggestion}; create it with `penstock topic create`, or give "
            "missing='wait' to read it once it is created, or missing='create'"
        )

    def existing(self, topics: Collection[str]) -> set[str]:
        """Returns the subset of `topics` that exists. Does not create topics."""
        found = set()
        for topic, future in self._describe(topics).items():
            try:
                future.result()
            except KafkaException as error:
                if kafka_error(error).code() not in _TOPIC_CREATING_CODES:
                    raise self._explain(kafka_error(error), f"topic {topic!r}") from error
            else:
                found.add(topic)
        return found

    def auto_create(self, topics: Collection[str]) -> None:
        """Requests metadata so that the broker creates missing topics, if auto.create.topics.enable allows it.

        Needed because librdkafka's consumers, unlike Kafka's, do not cause topics to be created.
        """
        deadline_s = self._clock.monotonic_s() + min(TOPIC_WAIT_S, self._settings.timeout_s / 2)
        for topic in topics:
            while error := self._request_topic(topic):
                if error.code() not in _TOPIC_CREATING_CODES or self._clock.monotonic_s() >= deadline_s:
                    raise explain(error, f"topic {topic!r}", SubscribeFailed)
                time.sleep(POLL_S)

    def _request_topic(self, topic: str) -> KafkaError | None:
        timeout_s = self._settings.timeout_s
        found = self._call(lambda: self._admin.list_topics(topic, timeout=timeout_s), f"topic {topic!r}")
        error: KafkaError | None = found.topics[topic].error
        return error

    def create(self, topic: str, configs: Mapping[str, str], *, exists_ok: bool = False) -> None:
        """Creates a topic, or a view (filtered topic) if `configs` has `view.of`. Raises InvalidArgument for invalid
        configs."""
        timeout_s = self._settings.timeout_s
        (future,) = self._admin.create_topics(
            [NewTopic(topic, config=dict(configs))], request_timeout=timeout_s
        ).values()
        try:
            future.result()
        except KafkaException as error:
            refused = kafka_error(error)
            if exists_ok and refused.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if refused.code() in (KafkaError.INVALID_CONFIG, KafkaError.TOPIC_EXCEPTION, KafkaError.POLICY_VIOLATION):
                raise InvalidArgument(f"{topic!r}: {refused.str()}", code_of(refused)) from error
            raise self._explain(refused, f"creating {topic!r}") from error

    def delete(self, topic: str) -> None:
        (future,) = self._admin.delete_topics([topic], request_timeout=self._settings.timeout_s).values()
        self._call(future.result, f"deleting {topic!r}")

    def config(self, topic: str, name: str) -> str | None:
        """Returns the value of one topic config; None if topics have no config of this name."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (future,) = self._admin.describe_configs([resource], request_timeout=self._settings.timeout_s).values()
        found = self._call(future.result, f"topic {topic!r}")
        return str(found[name].value) if name in found else None

    def partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        """Returns all partitions of these topics. Raises UnknownTopic if a topic does not exist."""
        found: list[TopicPartition] = []
        for topic, future in self._describe(topics).items():
            described = self._call(future.result, f"topic {topic!r}")
            found += [TopicPartition(topic, partition.id) for partition in described.partitions]
        return sorted(found)

    def _describe(self, topics: Collection[str]) -> dict[str, Any]:
        if not topics:
            return {}
        futures: dict[str, Any] = self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=self._settings.timeout_s
        )
        return futures

    def resolve(self, start: Start, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the offset of the start position in each partition."""
        if not tps:
            return {}
        first = self._offsets(tps, OffsetSpec.earliest())
        last = self._offsets(tps, OffsetSpec.latest())
        ranges = {tp: LogRange(first[tp], last[tp]) for tp in tps}
        at_time = self._offsets(tps, OffsetSpec.for_timestamp(start.value)) if start.origin is Origin.TIME else {}
        try:
            return start_offsets(start, ranges, at_time)
        except OffsetOutOfRange as error:
            raise SubscribeFailed(error.message, error.code) from error

    def _offsets(self, tps: Collection[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        futures = self._admin.list_offsets(
            {KafkaPartition(*tp): spec for tp in tps},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=self._settings.timeout_s,
        )
        found = {}
        for partition, future in futures.items():
            result = self._call(future.result, f"the offsets of partition {partition.topic}-{partition.partition}")
            found[TopicPartition(partition.topic, partition.partition)] = int(result.offset)
        return found

    def seek(self, group: str, topic: str, to: From) -> dict[int, int]:
        """Sets a consumer group's committed offsets in a topic to the position `to`; returns them by partition."""
        offsets = self.resolve(start_of(to), self.partitions([topic]))
        self.commit_offsets(group, offsets)
        return {tp.partition: offset for tp, offset in offsets.items()}

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits offsets for a consumer group without members. Waits while the group coordinator is loading."""
        deadline_s = self._clock.monotonic_s() + self._settings.timeout_s
        while (error := self._try_commit_offsets(group, offsets)) is not None:
            if error.code() not in _COORDINATOR_LOADING_CODES or self._clock.monotonic_s() >= deadline_s:
                raise self._explain(error, f"committing offsets for group {group!r}")
            time.sleep(POLL_S)

    def _try_commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> KafkaError | None:
        request = ConsumerGroupTopicPartitions(group, to_kafka(offsets))
        # A new client: after a restart of all brokers librdkafka 2.16 keeps sending to the coordinator that it knew,
        # over a closed connection, and gets no answer for minutes.
        with AdminClient(admin_config(self._settings)) as admin:
            (future,) = admin.alter_consumer_group_offsets(
                [request], request_timeout=self._settings.timeout_s
            ).values()
            try:
                result = future.result()
            except KafkaException as error:
                return kafka_error(error)
        return next((entry.error for entry in result.topic_partitions if entry.error is not None), None)

    def endpoints(self) -> list[Endpoint]:
        """Returns the SQS endpoints that the brokers advertise."""
        timeout_s = self._settings.timeout_s
        found = self._call(lambda: self._admin.list_topics(timeout=timeout_s), "looking for queues")
        advertised, failure = [], None
        for node_id in found.brokers:
            resource = ConfigResource(ResourceType.BROKER, str(node_id))
            (future,) = self._admin.describe_configs([resource], request_timeout=timeout_s).values()
            try:
                configs = future.result()
            except KafkaException as error:
                failure = kafka_error(error)
                continue  # another broker may answer
            advertised.append(configs[ADVERTISED_HTTP].value if ADVERTISED_HTTP in configs else "")
        if failure is not None and not advertised:
            raise self._explain(failure, "looking for queues")
        return endpoints_of(advertised, self._settings.servers)

    def _call(self, call: Callable[[], T], doing: str) -> T:
        try:
            return call()
        except KafkaException as error:
            raise self._explain(kafka_error(error), doing) from error

    def _explain(self, error: KafkaError, doing: str) -> ApiError:
        # The coordinator rejects commits of others while the group has members.
        if error.code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS):
            return explain(KafkaError(KafkaError.NON_EMPTY_GROUP), doing, Busy)
        return explain(error, doing, SubscribeFailed, self._settings.servers)

    def close(self) -> None:
        # Explicitly: the traceback of an error that is kept would keep the client alive.
        self._admin.__exit__(None, None, None)


def to_kafka(offsets: Mapping[TopicPartition, int]) -> list[Any]:
    """Converts offsets to a list of confluent-kafka's TopicPartition."""
    return [KafkaPartition(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
