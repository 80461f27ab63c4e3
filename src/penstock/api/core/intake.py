"""Consumers: which partitions are ours, where reading begins, what arrives.

With a group, partitions come and go as the group decides. Without one, all are read, and nothing is committed.
One thread at a time uses an Intake.
"""

import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException
from confluent_kafka import Message as Arrived
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.api.core.blocking import BlockingCalls, CallTimedOut
from penstock.api.core.cluster_lookup import Lookup, Missing, Wanted, as_kafka
from penstock.api.core.outlet import heard
from penstock.api.core.progress import Offsets
from penstock.api.core.settings import TOPIC_PATIENCE_MS, Settings, consumer_config, is_incremental
from penstock.api.errors import ApiError, InvalidArgument, SubscribeFailed, explain, kafka_error
from penstock.client.offsets import Origin, Start
from penstock.foundation.clock import Clock
from penstock.foundation.ids import TopicPartition

PASSING: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._WAIT_COORD,
    }
)
"""What librdkafka gets over by itself."""
WAIT_S: Final = 1.0
"""How often a subscription that waits for a topic looks for it."""
MISSING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})

log = logging.getLogger("penstock.api")


class Listener(Protocol):
    """Whoever has to know which partitions are ours."""

    def gained(self, places: Collection[TopicPartition]) -> None: ...

    def revoked(self, places: Collection[TopicPartition]) -> None:
        """They go in good order: what is finished can be committed now."""

    def lost(self, places: Collection[TopicPartition]) -> None:
        """They are somebody else's already."""

    def settled(self, place: TopicPartition, offset: int, is_done: bool) -> None:
        """What became of a commit that nobody waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What to read, and how."""

    wanted: Wanted
    group: str | None
    start: Start
    prefetch: int
    """The most that one poll brings."""
    processing_timeout_s: float
    is_end_told: bool
    """Whether it matters that everything there is was read."""
    missing: Missing
    """What to do about a topic that does not exist."""


class Intake:
    """A consumer. See the top of this file."""

    def __init__(
        self, settings: Settings, lookup: Lookup, reading: Reading, listener: Listener, clock: Clock
    ) -> None:
        self._settings = settings
        self._lookup = lookup
        self._reading = reading
        self._listener = listener
        self._clock = clock
        # librdkafka wants a group in any case; one that is never joined leaves no trace.
        config = consumer_config(
            settings, reading.group or f"penstock-alone-{uuid.uuid4()}", reading.processing_timeout_s
        )
        config["enable.partition.eof"] = reading.is_end_told
        config["allow.auto.create.topics"] = reading.missing == "create"
        self._is_incremental = is_incremental(config)
        self._blocking = BlockingCalls()
        self._failure: ApiError | None = None
        self._paused: set[TopicPartition] = set()
        self._topics: list[str] = []
        self._places: set[TopicPartition] = set()
        self._at_end: set[TopicPartition] = set()
        self._missing: dict[str, float] = {}  # topics that were not there, and until when that is all right
        self._awaited: set[str] | None = None
        """Topics that do not exist yet; None before the first look."""
        self._late: set[str] = set()
        """Topics that were created after the first look: all of their messages are new."""
        self.is_joined = False
        """Whether it is known which partitions are ours."""
        self._looked_s = self._polled_s = clock.monotonic_s()
        try:
            self._consumer = Consumer({**config, "on_commit": self._on_commit, **heard(settings, clock)})
        except KafkaException as error:
            raise explain(kafka_error(error), "making a consumer", InvalidArgument) from error
        try:
            self._look()
        except BaseException:
            self._consumer.close()
            raise

    # -- what there is to read

    def _look(self) -> None:
        """Find the topics and partitions that there are by now."""
        self._looked_s = self._clock.monotonic_s()
        topics = self._find_topics()
        if self._reading.group is None:
            self._read_alone(topics)
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
        """The topics to read. On the first look those that do not exist are created, or refused."""
        wanted, missing = self._reading.wanted, self._reading.missing
        is_first = self._awaited is None
        absent: set[str] = set()
        if missing == "wait":
            absent = set(wanted.names) - self._lookup.existing(wanted.names)
            self._late |= absent
        elif is_first and missing == "create":
            self._lookup.summon(wanted.names)
        elif is_first:
            self._lookup.require(wanted.names)
        if absent and absent != self._awaited:
            log.warning("topics_awaited topics=%s hint='they do not exist yet'", ",".join(sorted(absent)))
        self._awaited = absent
        return [topic for topic in self._lookup.topics(wanted) if topic not in absent]

    def _read_alone(self, topics: Sequence[str]) -> None:
        found = self._lookup.partitions(topics)
        gone = [place for place in self._places if place.topic not in topics]
        if gone:
            self._consumer.incremental_unassign(_as_partitions(gone))
            self._let_go(self._listener.lost, gone)
            self.is_joined = True  # what is created again is new from its beginning
        new = [place for place in found if place not in self._places]
        # What is made while we read is new from its beginning.
        start = Start(Origin.EARLIEST) if self.is_joined else self._reading.start
        offsets = self._lookup.resolve(start, new)
        self.is_joined = True
        if offsets:
            self._gain(list(offsets))
            self._consumer.incremental_assign(as_kafka(offsets))

    def _look_again(self) -> None:
        """Look for topics that match or are waited for, and for new partitions, which only a group finds itself."""
        every_s = min(WAIT_S, self._settings.refresh_s) if self._awaited else self._settings.refresh_s
        for topic, until_s in list(self._missing.items()):
            if self._clock.monotonic_s() >= until_s:
                del self._missing[topic]
                if self._reading.missing == "wait":
                    every_s = 0.0
                else:
                    self._lookup.partitions([topic])  # UnknownTopic, unless it was made meanwhile
        is_worth_it = self._reading.group is None or self._reading.wanted.pattern or self._reading.missing == "wait"
        if is_worth_it and self._clock.monotonic_s() - self._looked_s >= every_s:
            try:
                self._look()
            except ApiError as error:
                # What is being read goes on; the next look may be luckier.
                log.warning("topics_not_found wanted=%s reason=%r", self._reading.wanted, str(error))

    def _gain(self, places: list[TopicPartition]) -> None:
        self._places.update(places)
        self._at_end.difference_update(places)
        self._listener.gained(places)

    # -- what arrives

    @property
    def is_overdue(self) -> bool:
        """Whether the group may have given us up since the last poll, and what we hold be somebody else's."""
        return self._clock.monotonic_s() - self._polled_s >= self._reading.processing_timeout_s

    @property
    def is_at_end(self) -> bool:
        """Whether everything there is was read, as far as we know."""
        return self.is_joined and self._places <= self._at_end

    def poll(self, wait_s: float) -> list[Arrived]:
        """What has arrived; waits for the first of it. Rebalances happen in here."""
        self._polled_s = self._clock.monotonic_s()
        self._raise_failure()
        self._look_again()
        self._resume(self._paused)
        first = self._consumer.poll(wait_s)
        if first is None:
            self._raise_failure()
            return []
        # Only what is there already: waiting for a full batch would hold up the first.
        rest = self._consumer.consume(self._reading.prefetch - 1, 0) if self._reading.prefetch > 1 else []
        return [message for message in (first, *rest) if not self._is_trouble(message)]

    def breathe(self) -> list[Arrived]:
        """Show that we are alive, though nothing more can be taken now. What was on its way may still come."""
        self._polled_s = self._clock.monotonic_s()
        self._raise_failure()
        self._pause()
        message = self._consumer.poll(0)
        self._raise_failure()
        return [] if message is None or self._is_trouble(message) else [message]

    def _pause(self) -> None:
        """Pause every assigned partition that is not paused yet."""
        added = [place for place in _places(self._consumer.assignment()) if place not in self._paused]
        if added:
            self._consumer.pause(_as_partitions(added))
            self._paused.update(added)

    def _resume(self, places: Collection[TopicPartition]) -> None:
        """Resume those of these partitions that are paused, whether they are assigned or not."""
        resumed = [place for place in places if place in self._paused]
        if resumed:
            self._consumer.resume(_as_partitions(resumed))
            self._paused.difference_update(resumed)

    def _is_trouble(self, message: Arrived) -> bool:
        error = message.error()
        if error is None:
            if self._at_end:
                self._at_end.discard(_place(message))
            return False
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            self._at_end.add(_place(message))
            return True
        if code == KafkaError._MAX_POLL_EXCEEDED:
            self._let_go(self._listener.lost, list(self._places))
            log.warning(
                "processing_took_too_long group=%s limit_s=%g hint='the group went on without this member, and its "
                "messages come again elsewhere; raise processing_timeout_s'",
                self._reading.group,
                self._reading.processing_timeout_s,
            )
        elif code in MISSING:
            # Asking for a topic may make it, and then it is told of as missing all the same.
            patience_s = min(TOPIC_PATIENCE_MS / 1000, self._settings.timeout_s / 2)
            self._missing.setdefault(message.topic() or "", self._clock.monotonic_s() + patience_s)
        elif code not in PASSING:
            self._failure = self._failure or explain(error, f"reading {self._reading.wanted}", SubscribeFailed)
        return True

    def _raise_failure(self) -> None:
        """What failed once stays so: partitions may have been lost track of, and who went on would miss messages."""
        if self._failure is not None:
            raise self._failure

    # -- rebalances: called from within poll() and close()

    def _on_assign(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        self._guarded(lambda: self._assign(partitions))
        self.is_joined = True

    def _assign(self, partitions: list[KafkaPartition]) -> None:
        begin = self._beginnings(partitions)
        self._gain(_places(partitions))
        for partition in partitions:
            partition.offset = begin.get(TopicPartition(partition.topic, partition.partition), OFFSET_INVALID)
        if not self._is_incremental:
            self._consumer.assign(partitions)
        elif partitions:
            self._consumer.incremental_assign(partitions)
        if begin:
            # Else what comes before the first commit would be missed by whoever takes over before that.
            self._consumer.commit(offsets=as_kafka(begin), asynchronous=True)

    def _beginnings(self, partitions: list[KafkaPartition]) -> dict[TopicPartition, int]:
        """Where to begin in the partitions for which the group has committed nothing yet."""
        if self._reading.start.origin is Origin.EARLIEST or not partitions:
            return {}  # as librdkafka does by itself
        committed = self._consumer.committed(partitions, self._settings.timeout_s)
        new = _places([found for found in committed if found.offset < 0 and found.topic not in self._late])
        return self._lookup.resolve(self._reading.start, new)

    def _on_revoke(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        self._let_go(self._listener.revoked, _places(partitions))

    def _on_lost(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        log.warning(
            "partitions_lost group=%s partitions=%d hint='the group removed this member, which joins again; messages "
            "that were not committed come again'",
            self._reading.group,
            len(partitions),
        )
        self._let_go(self._listener.lost, _places(partitions))

    def _let_go(self, tell: Callable[[list[TopicPartition]], None], places: list[TopicPartition]) -> None:
        # librdkafka keeps a partition paused after it was revoked: assigned again, it would never be fetched.
        self._resume(places)
        self._places.difference_update(places)
        if not self._places:
            self.is_joined = False  # until we hear what is ours now: who has nothing meanwhile is not idle
        self._guarded(lambda: tell(places))

    def _guarded(self, action: Callable[[], None]) -> None:
        """Do it; what goes wrong is raised by the poll that it happened in, and by all after it."""
        try:
            action()
        except KafkaException as error:
            failure = explain(kafka_error(error), f"reading {self._reading.wanted}", SubscribeFailed)
            self._failure = self._failure or failure
        except ApiError as error:
            self._failure = self._failure or error

    # -- commits

    def commit(self, offsets: Offsets) -> None:
        """Commit; what became of it is told to the listener by a later poll."""
        self._consumer.commit(offsets=as_kafka(offsets), asynchronous=True)

    def commit_now(self, offsets: Offsets) -> dict[TopicPartition, ApiError]:
        """Commits, and waits for the answer, `timeout_s` at most. Returns what could not be committed, and why."""
        doing = f"committing for group {self._reading.group!r}"
        wanted = as_kafka(offsets)
        try:
            answers = self._blocking.run(
                lambda: self._consumer.commit(offsets=wanted, asynchronous=False), self._settings.timeout_s
            )
        except KafkaException as error:
            return dict.fromkeys(offsets, explain(kafka_error(error), doing, SubscribeFailed))
        except CallTimedOut:
            return dict.fromkeys(offsets, explain(KafkaError(KafkaError._TIMED_OUT), doing, SubscribeFailed))
        return {
            TopicPartition(answer.topic, answer.partition): explain(answer.error, doing, SubscribeFailed)
            for answer in answers
            if answer.error is not None
        }

    def _on_commit(self, error: KafkaError | None, partitions: list[KafkaPartition]) -> None:
        for partition in partitions:
            failed = error or partition.error
            if failed:
                log.info("commit_failed group=%s reason=%r", self._reading.group, failed.str())
            place = TopicPartition(partition.topic, partition.partition)
            self._listener.settled(place, partition.offset, not failed)

    def group_metadata(self) -> Any:
        """Who we are in the group: what offsets in a transaction are checked against (KIP-447)."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        """Leaves the group, so that the other members need not wait for the session to expire."""
        self._paused.clear()  # nothing is fetched any more
        try:
            self._blocking.run_last(self._consumer.close, self._settings.timeout_s)
        except CallTimedOut:
            log.warning(
                "consumer_not_closed group=%s timeout_s=%s hint='no broker answers; it is closed when one does'",
                self._reading.group,
                self._settings.timeout_s,
            )


def _place(message: Arrived) -> TopicPartition:
    return TopicPartition(message.topic() or "", message.partition() or 0)


def _places(partitions: Collection[KafkaPartition]) -> list[TopicPartition]:
    return [TopicPartition(partition.topic, partition.partition) for partition in partitions]


def _as_partitions(places: Collection[TopicPartition]) -> list[KafkaPartition]:
    return [KafkaPartition(place.topic, place.partition) for place in places]
