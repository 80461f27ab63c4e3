"""What can be asked of a cluster: its topics, the offsets they hold, where a reader begins; and moving a group."""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import (
    TopicPartition as KafkaPartition,
)
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
    nobody_at,
    speaks_http,
    why_unreachable,
)
from penstock.client.http import Endpoint
from penstock.client.offsets import Origin, Range, Start
from penstock.client.sqs import ADVERTISED_HTTP, endpoints_of
from penstock.foundation.clock import Clock
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition

T = TypeVar("T")

From = Literal["earliest", "latest"] | datetime | int
"""Where to begin: an end, a time, an offset, or -N for the last N of each partition."""
Missing = Literal["error", "wait", "create"]
"""What a subscription does about a topic that does not exist."""
Topics = str | Iterable[str] | re.Pattern[str]
"""A topic, several, or a pattern that must match whole names. A str that begins with ^ is a pattern too."""
MISSING_S: Final = 2.0
"""How long a topic that was created a moment ago may be unknown to the broker that is asked."""
STEP_S: Final = 0.05
PROMPT_S: Final = 0.5
"""A broker that has not answered after so long may be a server of something else."""
_COMING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE})
"""What brokers say of a topic while they make it."""
_LOADING: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
"""What brokers say of a group while its coordinator is not ready."""
INTERNAL: Final = "__"
"""What the names of the cluster's own topics begin with: patterns do not match those."""


def start_of(from_: From) -> Start:
    """Where to begin, as it is written.

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
        f"from_={from_!r} is no place; give 'earliest', 'latest', a datetime, an offset, or -N for the last N"
    )


class Wanted:
    """The topics that a subscription is about.

    >>> Wanted(re.compile(r"orders-\\d+")).matches("orders-7")
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
                raise InvalidArgument(f"{topics!r} is no regular expression: {error}") from error
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


def placed(
    start: Start, held: Mapping[TopicPartition, Range], at_time: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offset to begin at in each partition. `at_time`: where the time of `start` is, if that is what it is about.

    A plain offset must lie in at least one of them; the others begin at whichever of their ends is nearer to it.
    """
    match start.origin:
        case Origin.EARLIEST:
            return {place: span.start for place, span in held.items()}
        case Origin.LATEST:
            return {place: span.end for place, span in held.items()}
        case Origin.BACK:
            return {place: max(span.start, span.end - start.value) for place, span in held.items()}
        case Origin.TIME:
            # Nothing is that late: only what is yet to come.
            return {place: at_time.get(place, span.end) for place, span in held.items()}
        case Origin.OFFSET:
            if held and not any(span.start <= start.value <= span.end for span in held.values()):
                holds = ", ".join(f"{place} holds {span.start} to {span.end}" for place, span in held.items())
                raise SubscribeFailed(f"offset {start.value} is not there; {holds}", ErrorCode.OFFSET_OUT_OF_RANGE)
            return {place: min(max(start.value, span.start), span.end) for place, span in held.items()}


class Lookup:
    """Asks a cluster. Any thread may."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        try:
            self._admin = AdminClient(admin_config(settings))
        except KafkaException as error:
            raise explain(kafka_error(error), "connecting", InvalidArgument) from error

    def check(self) -> None:
        """NotConnected, with the reason, unless a broker answers."""
        servers, timeout_s = self._settings.servers, self._settings.timeout_s
        try:
            with suppress(KafkaException):
                self._admin.list_topics(timeout=min(PROMPT_S, timeout_s))
                return
            if address := speaks_http(servers):  # librdkafka would go on trying
                raise NotConnected(
                    f"{address} speaks HTTP, not the Kafka protocol; give the port of Kafka clients (9092, unless "
                    "`penstock serve --listen` says another)"
                )
            self._admin.list_topics(timeout=timeout_s)
        except KafkaException as error:
            reason = why_unreachable(servers)
            if reason:
                raise NotConnected(nobody_at(servers, reason)) from error
            raise NotConnected(
                f"somebody listens at {servers}, but does not answer as a broker; give a longer timeout_s, or check "
                "security.protocol and the sasl.* and ssl.* options",
                code_of(kafka_error(error)),
            ) from error

    def topics(self, wanted: Wanted) -> list[str]:
        """The names that are wanted: as they were given, or those that match and exist."""
        if wanted.pattern is None:
            return list(wanted.names)
        found = self._ask(lambda: self._admin.list_topics(timeout=self._settings.timeout_s), "looking for topics")
        return sorted(name for name in found.topics if wanted.matches(name))

    def require(self, topics: Collection[str]) -> None:
        """Raises UnknownTopic unless all of these topics exist. Creates none."""
        give_up_s = self._clock.monotonic_s() + min(MISSING_S, self._settings.timeout_s / 2)
        while absent := sorted(set(topics) - self.existing(topics)):
            if self._clock.monotonic_s() >= give_up_s:
                raise self._unknown(absent[0])
            time.sleep(STEP_S)

    def _unknown(self, topic: str) -> UnknownTopic:
        found = self._ask(lambda: self._admin.list_topics(timeout=self._settings.timeout_s), "looking for topics")
        alike = get_close_matches(topic, [name for name in found.topics if not name.startswith(INTERNAL)], 1)
        meant = f" (there is {alike[0]!r})" if alike else ""
        return UnknownTopic(
            f"topic {topic!r} does not exist{meant}; create it with `penstock topic create`, or give missing='wait' "
            "to read it once it is created, or missing='create'"
        )

    def existing(self, topics: Collection[str]) -> set[str]:
        """Those of these topics that exist. Creates none."""
        found = set()
        for topic, answer in self._describe(topics).items():
            try:
                answer.result()
            except KafkaException as error:
                if kafka_error(error).code() not in _COMING:
                    raise self._refused(kafka_error(error), f"topic {topic!r}") from error
            else:
                found.add(topic)
        return found

    def summon(self, topics: Collection[str]) -> None:
        """Have the broker create those of these topics that do not exist, if it creates topics that are asked for.

        librdkafka's consumers do not ask in that way, as Kafka's own do.
        """
        give_up_s = self._clock.monotonic_s() + min(MISSING_S, self._settings.timeout_s / 2)
        for topic in topics:
            while error := self._ask_for(topic):
                if error.code() not in _COMING or self._clock.monotonic_s() >= give_up_s:
                    raise explain(error, f"topic {topic!r}", SubscribeFailed)
                time.sleep(STEP_S)

    def _ask_for(self, topic: str) -> KafkaError | None:
        timeout_s = self._settings.timeout_s
        found = self._ask(lambda: self._admin.list_topics(topic, timeout=timeout_s), f"topic {topic!r}")
        error: KafkaError | None = found.topics[topic].error
        return error

    def create(self, topic: str, configs: Mapping[str, str], *, exists_ok: bool = False) -> None:
        """Make a topic with these settings, or a view. InvalidArgument says what is wrong with them."""
        timeout_s = self._settings.timeout_s
        (answer,) = self._admin.create_topics(
            [NewTopic(topic, config=dict(configs))], request_timeout=timeout_s
        ).values()
        try:
            answer.result()
        except KafkaException as error:
            refused = kafka_error(error)
            if exists_ok and refused.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if refused.code() in (KafkaError.INVALID_CONFIG, KafkaError.TOPIC_EXCEPTION, KafkaError.POLICY_VIOLATION):
                raise InvalidArgument(f"{topic!r}: {refused.str()}", code_of(refused)) from error
            raise self._refused(refused, f"making {topic!r}") from error

    def delete(self, topic: str) -> None:
        (answer,) = self._admin.delete_topics([topic], request_timeout=self._settings.timeout_s).values()
        self._ask(answer.result, f"deleting {topic!r}")

    def config(self, topic: str, name: str) -> str | None:
        """One setting of a topic; None if topics have none of that name."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (answer,) = self._admin.describe_configs([resource], request_timeout=self._settings.timeout_s).values()
        found = self._ask(answer.result, f"topic {topic!r}")
        return str(found[name].value) if name in found else None

    def partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        """All partitions of these topics. UnknownTopic if one does not exist."""
        found: list[TopicPartition] = []
        for topic, answer in self._describe(topics).items():
            described = self._ask(answer.result, f"topic {topic!r}")
            found += [TopicPartition(topic, partition.id) for partition in described.partitions]
        return sorted(found)

    def _describe(self, topics: Collection[str]) -> dict[str, Any]:
        if not topics:
            return {}
        answers: dict[str, Any] = self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=self._settings.timeout_s
        )
        return answers

    def resolve(self, start: Start, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset to begin at in each partition."""
        if not places:
            return {}
        first = self._offsets(places, OffsetSpec.earliest())
        last = self._offsets(places, OffsetSpec.latest())
        held = {place: Range(first[place], last[place]) for place in places}
        at_time = {}
        if start.origin is Origin.TIME:
            found = self._offsets(places, OffsetSpec.for_timestamp(start.value))
            at_time = {place: offset for place, offset in found.items() if offset >= 0}
        return placed(start, held, at_time)

    def _offsets(self, places: Collection[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        answers = self._admin.list_offsets(
            {KafkaPartition(*place): spec for place in places},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=self._settings.timeout_s,
        )
        found = {}
        for asked, answer in answers.items():
            result = self._ask(answer.result, f"the offsets of partition {asked.topic}-{asked.partition}")
            found[TopicPartition(asked.topic, asked.partition)] = int(result.offset)
        return found

    def move(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group that has no members now. Waits for a coordinator that is being loaded."""
        give_up_s = self._clock.monotonic_s() + self._settings.timeout_s
        while (error := self._move(group, offsets)) is not None:
            if error.code() not in _LOADING or self._clock.monotonic_s() >= give_up_s:
                raise self._refused(error, f"moving group {group!r}")
            time.sleep(STEP_S)

    def _move(self, group: str, offsets: Mapping[TopicPartition, int]) -> KafkaError | None:
        request = ConsumerGroupTopicPartitions(group, as_kafka(offsets))
        # A new client: after a restart of all brokers librdkafka 2.16 goes on asking the coordinator that it knew,
        # whose connection it has given up, and is not answered for minutes.
        with AdminClient(admin_config(self._settings)) as admin:
            (answer,) = admin.alter_consumer_group_offsets(
                [request], request_timeout=self._settings.timeout_s
            ).values()
            try:
                result = answer.result()
            except KafkaException as error:
                return kafka_error(error)
        return next((entry.error for entry in result.topic_partitions if entry.error is not None), None)

    def endpoints(self) -> list[Endpoint]:
        """Where queues are served, as every broker that answers tells of itself."""
        timeout_s = self._settings.timeout_s
        found = self._ask(lambda: self._admin.list_topics(timeout=timeout_s), "looking for queues")
        told, failure = [], None
        for node_id in found.brokers:
            resource = ConfigResource(ResourceType.BROKER, str(node_id))
            (answer,) = self._admin.describe_configs([resource], request_timeout=timeout_s).values()
            try:
                configs = answer.result()
            except KafkaException as error:
                failure = kafka_error(error)
                continue  # another one answers
            told.append(configs[ADVERTISED_HTTP].value if ADVERTISED_HTTP in configs else "")
        if failure is not None and not told:
            raise self._refused(failure, "looking for queues")
        return endpoints_of(told, self._settings.servers)

    def _ask(self, ask: Callable[[], T], doing: str) -> T:
        try:
            return ask()
        except KafkaException as error:
            raise self._refused(kafka_error(error), doing) from error

    def _refused(self, error: KafkaError, doing: str) -> ApiError:
        # A member's heartbeats are how the coordinator knows that the group is in use.
        if error.code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS):
            return explain(KafkaError(KafkaError.NON_EMPTY_GROUP), doing, Busy)
        return explain(error, doing, SubscribeFailed, self._settings.servers)

    def close(self) -> None:
        # Not by its last reference alone: somebody may keep an error, and with it the client that it comes from.
        self._admin.__exit__(None, None, None)


def as_kafka(offsets: Mapping[TopicPartition, int]) -> list[Any]:
    """Offsets as confluent-kafka takes them."""
    return [KafkaPartition(place.topic, place.partition, offset) for place, offset in offsets.items()]
