"""Kafka consumer of a subscription: topic discovery, group rebalances, start offsets, commits.

With a consumer group, the group assigns the partitions. Without a group, all partitions are read and no offsets are
committed. Not thread-safe.
"""

import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException
from confluent_kafka import Message as Arrived
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.api.core.background_producer import logging_config
from penstock.api.core.blocking import BlockingCalls, CallTimedOut
from penstock.api.core.cluster_lookup import ClusterLookup, Missing, TopicSelection, to_kafka
from penstock.api.core.position_tracker import Offsets
from penstock.api.core.settings import TOPIC_PATIENCE_MS, Settings, consumer_config, is_incremental
from penstock.api.errors import ApiError, InvalidArgument, SubscribeFailed, explain, kafka_error
from penstock.client.offsets import Origin, Start
from penstock.foundation.clock import Clock
from penstock.foundation.ids import TopicPartition

TRANSIENT_CODES: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._WAIT_COORD,
    }
)
"""Error codes from which librdkafka recovers automatically."""
MISSING_CHECK_S: Final = 1.0
"""Interval, in seconds, at which a subscription checks whether an awaited topic was created."""
UNKNOWN_TOPIC_CODES: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})

log = logging.getLogger("penstock.api")


class RebalanceListener(Protocol):
    """Interface for changes of the assigned partitions and results of asynchronous commits."""

    def on_assigned(self, tps: Collection[TopicPartition]) -> None: ...

    def on_revoked(self, tps: Collection[TopicPartition]) -> None:
        """Called before partitions are revoked: finished messages can still be committed."""

    def on_lost(self, tps: Collection[TopicPartition]) -> None:
        """Called when partitions are already assigned to other members: commits are no longer possible."""

    def on_commit_result(self, tp: TopicPartition, offset: int, is_committed: bool) -> None:
        """Called when an asynchronous commit succeeded or failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Topics, consumer group and start position of a subscription."""

    selection: TopicSelection
    group: str | None
    start: Start
    prefetch: int
    """Maximum number of messages that one poll returns."""
    processing_timeout_s: float
    reports_end: bool
    """Whether librdkafka reports that the end of a partition was reached."""
    missing: Missing
    """Action if a topic does not exist: raise an error, wait for the topic, or create it."""


class SubscriptionConsumer:
    """The Kafka consumer of a subscription, with or without a consumer group."""

    def __init__(
        self,
        settings: Settings,
        lookup: ClusterLookup,
        read_options: ReadOptions,
        listener: RebalanceListener,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._lookup = lookup
        self._options = read_options
        self._listener = listener
        self._clock = clock
        # librdkafka always needs a group id; a group that is never joined is not created.
        config = consumer_config(
            settings, read_options.group or f"penstock-alone-{uuid.uuid4()}", read_options.processing_timeout_s
        )
        config["enable.partition.eof"] = read_options.reports_end
        config["allow.auto.create.topics"] = read_options.missing == "create"
        self._is_incremental = is_incremental(config)
        self._blocking = BlockingCalls()
        self._failure: ApiError | None = None
        self._paused: set[TopicPartition] = set()
        self._topics: list[str] = []
        self._tps: set[TopicPartition] = set()
        self._at_end: set[TopicPartition] = set()
        self._missing_until_s: dict[str, float] = {}  # unknown topics, with a deadline
        self._awaited_topics: set[str] | None = None
        """Selected topics that do not exist yet; None before the first topic lookup."""
        self._created_later: set[str] = set()
        """Topics that did not exist at some topic lookup: they are read from their beginning."""
        self.is_joined = False
        """Whether partitions are assigned, or no topic exists to subscribe to."""
        self._updated_s = self._polled_s = clock.monotonic_s()
        try:
            self._consumer = Consumer({**config, "on_commit": self._on_commit, **logging_config(settings, clock)})
        except KafkaException as error:
            raise explain(kafka_error(error), "creating a consumer", InvalidArgument) from error
        try:
            self._update_topics()
        except BaseException:
            self._consumer.close()
            raise

    # -- topics and partitions

    def _update_topics(self) -> None:
        """Looks up the topics to read, and subscribes to them; without a group, assigns all their partitions."""
        self._updated_s = self._clock.monotonic_s()
        topics = self._find_topics()
        if self._options.group is None:
            self._assign_all(topics)
        elif topics != self._topics:
            if not self._topics:
                self.is_joined = False
            self._topics = topics
            if topics:
                self._consumer.subscribe(
                    topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
                )
            else:
                self._consumer.unsubscribe()
                self.is_joined = True  # there is nothing to join for

    def _find_topics(self) -> list[str]:
        """Returns the existing topics to read. A missing topic is awaited, created or an error, by `missing`."""
        selection, missing = self._options.selection, self._options.missing
        is_first = self._awaited_topics is None
        absent: set[str] = set()
        if missing == "wait":
            absent = set(selection.names) - self._lookup.existing(selection.names)
            self._created_later |= absent
        elif is_first and missing == "create":
            self._lookup.auto_create(selection.names)
        elif is_first:
            self._lookup.require(selection.names)
        if absent and absent != self._awaited_topics:
            log.warning("topics_awaited topics=%s hint='they do not exist yet'", ",".join(sorted(absent)))
        self._awaited_topics = absent
        return [topic for topic in self._lookup.topics(selection) if topic not in absent]

    def _assign_all(self, topics: Sequence[str]) -> None:
        found = self._lookup.partitions(topics)
        removed = [tp for tp in self._tps if tp.topic not in topics]
        if removed:
            self._consumer.incremental_unassign(_as_partitions(removed))
            self._remove_partitions(self._listener.on_lost, removed)
            self.is_joined = True  # a topic that is created again is read from its beginning
        new = [tp for tp in found if tp not in self._tps]
        # Partitions that are added later are read from their beginning.
        start = Start(Origin.EARLIEST) if self.is_joined else self._options.start
        offsets = self._lookup.resolve(start, new)
        self.is_joined = True
        if offsets:
            self._add_partitions(list(offsets))
            self._consumer.incremental_assign(to_kafka(offsets))

    def _maybe_update_topics(self) -> None:
        """Periodically looks up awaited topics, topics that match a pattern, and (without a group) new partitions."""
        every_s = min(MISSING_CHECK_S, self._settings.refresh_s) if self._awaited_topics else self._settings.refresh_s
        for topic, until_s in list(self._missing_until_s.items()):
            if self._clock.monotonic_s() >= until_s:
                del self._missing_until_s[topic]
                if self._options.missing == "wait":
                    every_s = 0.0
                else:
                    self._lookup.partitions([topic])  # raises UnknownTopic unless it was created meanwhile
        may_change = self._options.group is None or self._options.selection.pattern or self._options.missing == "wait"
        if may_change and self._clock.monotonic_s() - self._updated_s >= every_s:
            try:
                self._update_topics()
            except ApiError as error:
                # Assigned partitions are still read; the next update may succeed.
                log.warning("topics_not_found topics=%s reason=%r", self._options.selection, str(error))

    def _add_partitions(self, tps: list[TopicPartition]) -> None:
        self._tps.update(tps)
        self._at_end.difference_update(tps)
        self._listener.on_assigned(tps)

    # -- polling

    @property
    def is_overdue(self) -> bool:
        """Whether the group may have removed this member since its last poll (max.poll.interval.ms)."""
        return self._clock.monotonic_s() - self._polled_s >= self._options.processing_timeout_s

    @property
    def is_at_end(self) -> bool:
        """Whether all assigned partitions were read up to their end offset."""
        return self.is_joined and self._tps <= self._at_end

    def poll(self, wait_s: float) -> list[Arrived]:
        """Returns fetched messages; waits up to `wait_s` for the first. Runs the rebalance callbacks."""
        self._polled_s = self._clock.monotonic_s()
        self._raise_failure()
        self._maybe_update_topics()
        self._resume(self._paused)
        first = self._consumer.poll(wait_s)
        if first is None:
            self._raise_failure()
            return []
        # Without waiting: a wait for a full batch would delay the first message.
        rest = self._consumer.consume(self._options.prefetch - 1, 0) if self._options.prefetch > 1 else []
        return [message for message in (first, *rest) if not self._handle_event(message)]

    def poll_paused(self) -> list[Arrived]:
        """Polls with all partitions paused, to stay in the group. May return a message fetched before the pause."""
        self._polled_s = self._clock.monotonic_s()
        self._raise_failure()
        self._pause()
        message = self._consumer.poll(0)
        self._raise_failure()
        return [] if message is None or self._handle_event(message) else [message]

    def _pause(self) -> None:
        added = [tp for tp in _tps(self._consumer.assignment()) if tp not in self._paused]
        if added:
            self._consumer.pause(_as_partitions(added))
            self._paused.update(added)

    def _resume(self, tps: Collection[TopicPartition]) -> None:
        """Resumes the paused partitions among `tps`, even if they are not assigned."""
        resumed = [tp for tp in tps if tp in self._paused]
        if resumed:
            self._consumer.resume(_as_partitions(resumed))
            self._paused.difference_update(resumed)

    def _handle_event(self, message: Arrived) -> bool:
        """Handles an error or end-of-partition event and returns True; returns False for a normal message."""
        error = message.error()
        if error is None:
            if self._at_end:
                self._at_end.discard(_tp(message))
            return False
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            self._at_end.add(_tp(message))
            return True
        if code == KafkaError._MAX_POLL_EXCEEDED:
            self._remove_partitions(self._listener.on_lost, list(self._tps))
            log.warning(
                "processing_took_too_long group=%s limit_s=%g hint='the group removed this member, and its messages "
                "are delivered to others; raise processing_timeout_s'",
                self._options.group,
                self._options.processing_timeout_s,
            )
        elif code in UNKNOWN_TOPIC_CODES:
            # A metadata request may create the topic, and still report it as missing.
            patience_s = min(TOPIC_PATIENCE_MS / 1000, self._settings.timeout_s / 2)
            self._missing_until_s.setdefault(message.topic() or "", self._clock.monotonic_s() + patience_s)
        elif code not in TRANSIENT_CODES:
            self._failure = self._failure or explain(error, f"reading {self._options.selection}", SubscribeFailed)
        return True

    def _raise_failure(self) -> None:
        """Raises the first permanent failure, if there was one: further polls could skip messages."""
        if self._failure is not None:
            raise self._failure

    # -- rebalances: called from within poll() and close()

    def _on_assign(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        self._capture_failure(lambda: self._assign(partitions))
        self.is_joined = True

    def _assign(self, partitions: list[KafkaPartition]) -> None:
        start_offsets = self._start_offsets(partitions)
        self._add_partitions(_tps(partitions))
        for partition in partitions:
            partition.offset = start_offsets.get(TopicPartition(partition.topic, partition.partition), OFFSET_INVALID)
        if not self._is_incremental:
            self._consumer.assign(partitions)
        elif partitions:
            self._consumer.incremental_assign(partitions)
        if start_offsets:
            # Otherwise a member that takes over before the first commit would skip the messages before it.
            self._consumer.commit(offsets=to_kafka(start_offsets), asynchronous=True)

    def _start_offsets(self, partitions: list[KafkaPartition]) -> dict[TopicPartition, int]:
        """Returns the start offsets of partitions without a committed offset."""
        if self._options.start.origin is Origin.EARLIEST or not partitions:
            return {}  # as with auto.offset.reset
        committed = self._consumer.committed(partitions, self._settings.timeout_s)
        new = _tps([found for found in committed if found.offset < 0 and found.topic not in self._created_later])
        return self._lookup.resolve(self._options.start, new)

    def _on_revoke(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        self._remove_partitions(self._listener.on_revoked, _tps(partitions))

    def _on_lost(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        log.warning(
            "partitions_lost group=%s partitions=%d hint='the group removed this member, which rejoins; uncommitted "
            "messages are delivered again'",
            self._options.group,
            len(partitions),
        )
        self._remove_partitions(self._listener.on_lost, _tps(partitions))

    def _remove_partitions(self, notify: Callable[[list[TopicPartition]], None], tps: list[TopicPartition]) -> None:
        # librdkafka keeps a partition paused after it was revoked: assigned again, it would never be fetched.
        self._resume(tps)
        self._tps.difference_update(tps)
        if not self._tps:
            self.is_joined = False  # until the next assignment: without partitions it is not idle
        self._capture_failure(lambda: notify(tps))

    def _capture_failure(self, action: Callable[[], None]) -> None:
        """Runs a librdkafka callback. If it fails, the current poll and all later polls raise the error."""
        try:
            action()
        except KafkaException as error:
            failure = explain(kafka_error(error), f"reading {self._options.selection}", SubscribeFailed)
            self._failure = self._failure or failure
        except ApiError as error:
            self._failure = self._failure or error

    # -- commits

    def commit(self, offsets: Offsets) -> None:
        """Commits offsets asynchronously; a later poll passes the result to the RebalanceListener."""
        self._consumer.commit(offsets=to_kafka(offsets), asynchronous=True)

    def commit_now(self, offsets: Offsets) -> dict[TopicPartition, ApiError]:
        """Commits offsets; waits up to the connection's `timeout_s` for the response. Returns errors by partition."""
        doing = f"committing for group {self._options.group!r}"
        partitions = to_kafka(offsets)
        try:
            results = self._blocking.run(
                lambda: self._consumer.commit(offsets=partitions, asynchronous=False), self._settings.timeout_s
            )
        except KafkaException as error:
            return dict.fromkeys(offsets, explain(kafka_error(error), doing, SubscribeFailed))
        except CallTimedOut:
            return dict.fromkeys(offsets, explain(KafkaError(KafkaError._TIMED_OUT), doing, SubscribeFailed))
        return {
            TopicPartition(result.topic, result.partition): explain(result.error, doing, SubscribeFailed)
            for result in results
            if result.error is not None
        }

    def _on_commit(self, error: KafkaError | None, partitions: list[KafkaPartition]) -> None:
        for partition in partitions:
            failed = error or partition.error
            if failed:
                log.info("commit_failed group=%s reason=%r", self._options.group, failed.str())
            tp = TopicPartition(partition.topic, partition.partition)
            self._listener.on_commit_result(tp, partition.offset, not failed)

    def group_metadata(self) -> Any:
        """Returns the consumer group metadata of this member, which fences transactional offset commits (KIP-447)."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        """Closes the consumer and leaves the group, so that other members need not wait for a session timeout."""
        self._paused.clear()  # nothing is fetched any more
        try:
            self._blocking.run_last(self._consumer.close, self._settings.timeout_s)
        except CallTimedOut:
            log.warning(
                "consumer_not_closed group=%s timeout_s=%s hint='no broker answers; it is closed when one does'",
                self._options.group,
                self._settings.timeout_s,
            )


def _tp(message: Arrived) -> TopicPartition:
    return TopicPartition(message.topic() or "", message.partition() or 0)


def _tps(partitions: Collection[KafkaPartition]) -> list[TopicPartition]:
    return [TopicPartition(partition.topic, partition.partition) for partition in partitions]


def _as_partitions(tps: Collection[TopicPartition]) -> list[KafkaPartition]:
    return [KafkaPartition(tp.topic, tp.partition) for tp in tps]
