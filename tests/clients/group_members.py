"""Members of consumer groups: one interface for all client libraries, each member on its own thread."""

import asyncio
import threading
import traceback
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AiokafkaRoundRobin
from aiokafka.errors import IllegalStateError
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from .driver_confluent import QUIET
from .driver_kafka_python import (
    CooperativeStickyAssignor,
    KafkaConsumer,
    OffsetAndMetadata,
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
)
from .driver_kafka_python import TopicPartition as KafkaPythonPartition
from .waiting import PATIENCE_S, wait_until

POLL_S: Final = 0.05
HEARTBEAT_MS: Final = 100
"""Members hear soon that the group changes."""
SESSION_MS: Final = 10_000
"""Long enough for a busy machine; tests of expired sessions have their own."""

RANGE: Final = "range"
ROUND_ROBIN: Final = "roundrobin"
COOPERATIVE: Final = "cooperative-sticky"

Place = tuple[str, int]
"""A topic and the number of a partition."""


class Got(NamedTuple):
    place: Place
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """How a member joins."""

    bootstrap: str
    group: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """Instead of topics: a regular expression that begins with `^`."""
    instance_id: str | None = None
    assignor: str = RANGE
    session_ms: int = SESSION_MS
    client_id: str = "member"
    commits_at_once: bool = False
    """confluent-kafka's only. With the newer protocol a member may leave before it lets go, and commits no more."""


def described(error: BaseException) -> str:
    """An error and where it comes from (confluent-kafka's causes are no exceptions: nothing can chain them)."""
    return f"{error!r}\n{''.join(traceback.format_tb(error.__traceback__))}"


class Member(threading.Thread):
    """Polls until it is stopped, notes what it gets and owns, and commits what it has before it gives it up."""

    library: str

    def __init__(self, options: MemberOptions) -> None:
        super().__init__(name=f"{self.library} {options.client_id}", daemon=True)
        self.options = options
        self.got: list[Got] = []
        self.owned: frozenset[Place] = frozenset()
        self.history: list[frozenset[Place]] = []
        """What it owned after each change."""
        self.uncommitted: dict[Place, str] = {}
        """Partitions that it gave up without a commit, and why: others get their messages again."""
        self._got_before: dict[Place, int] = {}
        """How much it had got when it was assigned a partition the last time."""
        self._stopping = threading.Event()
        self._failure = ""

    def __repr__(self) -> str:
        return f"{self.name}: owns {sorted(self.owned)}, has got {len(self.got)}"

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
            self._failure = described(error)

    @abstractmethod
    def work(self) -> None: ...

    def tell_to_stop(self) -> None:
        self._stopping.set()

    def stop(self) -> None:
        """Leave, as the library does it; raises what went wrong meanwhile."""
        self.tell_to_stop()
        self.join(PATIENCE_S)
        assert not self.is_alive(), f"{self.name} does not end"
        self.check()

    def check(self) -> None:
        assert not self._failure, f"{self.name} has failed: {self._failure}"

    def note_owned(self, places: Iterable[Place]) -> None:
        found = frozenset(places)
        self._got_before |= dict.fromkeys(found - self.owned, len(self.got))
        self.owned = found
        self.history.append(self.owned)

    def positions(self, places: Iterable[Place]) -> dict[Place, int]:
        """Where it goes on in those of these partitions that it has got something of since they were assigned to it.

        Others may have got further before that: committing what was got earlier would take the group back.
        """
        wanted = set(places)
        return {
            got.place: got.offset + 1
            for number, got in enumerate(self.got)
            if got.place in wanted and number >= self._got_before.get(got.place, 0)
        }


class ConfluentMember(Member):
    library = "confluent-kafka"
    protocol = "classic"

    def settings(self) -> dict[str, Any]:
        options = self.options
        found: dict[str, Any] = {
            "bootstrap.servers": options.bootstrap,
            "group.id": options.group,
            "client.id": options.client_id,
            "group.protocol": self.protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "topic.metadata.refresh.interval.ms": 300,
            "reconnect.backoff.max.ms": 200,
            **QUIET,
        }
        if self.protocol == "classic":
            found |= {
                "session.timeout.ms": options.session_ms,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "partition.assignment.strategy": options.assignor,
            }
        if options.instance_id is not None:
            found["group.instance.id"] = options.instance_id
        return found

    def work(self) -> None:
        consumer = Consumer(self.settings())
        try:
            consumer.subscribe(
                [self.options.pattern] if self.options.pattern else list(self.options.topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
            while not self._stopping.is_set():
                message = consumer.poll(POLL_S)
                if self._stopping.is_set():
                    break  # what others have left meanwhile may be among it: the next owner gets it, maybe again
                if message is not None and message.error() is None:
                    self.got.append(Got((message.topic(), message.partition()), message.offset(), message.value()))
                    if self.options.commits_at_once:
                        consumer.commit(message=message, asynchronous=True)
                elif message is not None:
                    self._check(message.error())
                assert not self._failure, self._failure
        finally:
            consumer.close()

    @property
    def _is_incremental(self) -> bool:
        return self.protocol == "consumer" or self.options.assignor == COOPERATIVE

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = {(one.topic, one.partition) for one in partitions}
        self.note_owned(self.owned | places if self._is_incremental else places)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = {(one.topic, one.partition) for one in partitions}
        offsets = [TopicPartition(*place, offset) for place, offset in self.positions(places).items()]
        try:
            refused = self._commit(consumer, offsets) if offsets else None
            if refused is not None:
                self.uncommitted |= dict.fromkeys(places, str(refused))
        except AssertionError as error:
            # An error that leaves this function would leave `close` waiting for ever.
            self._failure = described(error)
        self.note_owned(self.owned - places)

    def _commit(self, consumer: Consumer, offsets: list[TopicPartition]) -> KafkaError | None:
        """The error, if it is one that may be expected."""
        try:
            errors = [one.error for one in consumer.commit(offsets=offsets, asynchronous=False) if one.error]
        except KafkaException as error:
            errors = [error.args[0]]
        for error in errors:
            self._check(error)
        return errors[0] if errors else None

    def _check(self, error: KafkaError | None) -> None:
        if error is None or error.retriable():
            return
        expected = {KafkaError.UNKNOWN_TOPIC_OR_PART}  # of a topic that was just deleted
        if self._stopping.is_set():
            # With the newer protocol librdkafka may say that it leaves before it lets go of what it has just got.
            expected.add(KafkaError.UNKNOWN_MEMBER_ID)
        assert error.code() in expected, error

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = {(one.topic, one.partition) for one in partitions}
        self.uncommitted |= dict.fromkeys(places, "lost")
        self.note_owned(self.owned - places)


class ConfluentConsumerMember(ConfluentMember):
    """The newer protocol (KIP-848): the broker shares out, and says how often it wants to be heard."""

    protocol = "consumer"


KAFKA_PYTHON_ASSIGNORS: Final = {
    RANGE: RangePartitionAssignor,
    ROUND_ROBIN: RoundRobinPartitionAssignor,
    COOPERATIVE: CooperativeStickyAssignor,
}


class KafkaPythonMember(Member):
    library = "kafka-python"

    def work(self) -> None:
        options = self.options
        consumer = KafkaConsumer(
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            client_id=options.client_id,
            group_instance_id=options.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            metadata_max_age_ms=300,
            session_timeout_ms=options.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            reconnect_backoff_max_ms=200,
            partition_assignment_strategy=[KAFKA_PYTHON_ASSIGNORS[options.assignor]],
        )
        # With a pattern it asks for metadata in every poll while it joins, and gets no further in a short one.
        poll_ms = 1000 if options.pattern else int(POLL_S * 1000)
        try:
            consumer.subscribe(topics=list(options.topics), pattern=options.pattern)
            while not self._stopping.is_set():
                polled = consumer.poll(timeout_ms=poll_ms)
                if consumer._coordinator._join_task is not None:
                    # It has begun to join again because there are new partitions. Once it has shared them out, it
                    # no longer knows that it has, and if `poll` ends there it is neither in the group nor out of it.
                    consumer._coordinator.request_rejoin()
                found = frozenset((one.topic, one.partition) for one in consumer.assignment())
                if found != self.owned:
                    self.note_owned(found)
                for records in polled.values():
                    self.got += [Got((one.topic, one.partition), one.offset, one.value) for one in records]
                # Rebalances happen within `poll` only: what was polled until then is committed here.
                self._commit(consumer, [(place.topic, place.partition) for place in polled])
        finally:
            consumer.close()
            self.note_owned(())

    def _commit(self, consumer: KafkaConsumer, places: Sequence[Place]) -> None:
        if places:
            consumer.commit(
                {
                    KafkaPythonPartition(*place): OffsetAndMetadata(offset, "", -1)
                    for place, offset in self.positions(places).items()
                }
            )


class AiokafkaMember(Member):
    library = "aiokafka"

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        options = self.options
        consumer = AIOKafkaConsumer(
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            client_id=options.client_id,
            group_instance_id=options.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            metadata_max_age_ms=300,
            session_timeout_ms=options.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[{RANGE: AiokafkaRange, ROUND_ROBIN: AiokafkaRoundRobin}[options.assignor]],
        )
        consumer.subscribe(topics=list(options.topics), pattern=options.pattern, listener=_Listener(self, consumer))
        await consumer.start()
        try:
            while not self._stopping.is_set():
                for records in (await consumer.getmany(timeout_ms=int(POLL_S * 1000))).values():
                    self.got += [Got((one.topic, one.partition), one.offset, one.value) for one in records]
                if self.owned:
                    await commit(consumer)
        finally:
            await consumer.stop()
            self.note_owned(())


async def commit(consumer: AIOKafkaConsumer) -> None:
    """Commit, if it knows of anything: when topics come that match its pattern, it forgets what it has."""
    with suppress(IllegalStateError):
        await consumer.commit()


class _Listener(ConsumerRebalanceListener):
    def __init__(self, member: AiokafkaMember, consumer: AIOKafkaConsumer) -> None:
        self._member = member
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: set[AiokafkaPartition]) -> None:
        # It is called before the first assignment too. What is committed are positions: `getmany` may have returned
        # out messages that its caller has not noted yet, but will.
        if revoked:
            await commit(self._consumer)
        self._member.note_owned(())

    async def on_partitions_assigned(self, assigned: set[AiokafkaPartition]) -> None:
        self._member.note_owned((one.topic, one.partition) for one in assigned)


KINDS: Final[Mapping[str, type[Member]]] = {
    "confluent-classic": ConfluentMember,
    "confluent-consumer": ConfluentConsumerMember,
    "aiokafka": AiokafkaMember,
    "kafka-python": KafkaPythonMember,
}
CLASSIC: Final = ("confluent-classic", "aiokafka", "kafka-python")


class Crew:
    """The members that a test has started; they are stopped at its end."""

    def __init__(self, bootstrap: str, group: str, **options: Any) -> None:
        self._common = {"bootstrap": bootstrap, "group": group, **options}
        self.all: list[Member] = []
        self.present: list[Member] = []

    def join(self, kind: str, **options: Any) -> Member:
        number = len(self.all)
        member = KINDS[kind](MemberOptions(**{**self._common, "client_id": f"member-{number}", **options}))
        self.all.append(member)
        self.present.append(member)
        member.start()
        return member

    def leave(self, member: Member) -> None:
        self.present.remove(member)
        member.stop()

    def forget(self, member: Member) -> None:
        """It has failed, as it should."""
        self.present.remove(member)
        self.all.remove(member)

    def check(self) -> None:
        for member in self.all:
            member.check()

    def wait_for_balance(self, places: Iterable[Place]) -> None:
        """All present members share these partitions, evenly."""
        wanted = sorted(places)

        def is_balanced() -> bool:
            self.check()
            sizes = [len(member.owned) for member in self.present]
            return (
                sorted(place for member in self.present for place in member.owned) == wanted
                and max(sizes) - min(sizes) <= 1
            )

        wait_until(is_balanced, f"an even share of {len(wanted)} partitions", seen=self.present)

    def wait_for_flow(self) -> None:
        """Every present member has got something of each partition that it has."""

        def flows() -> bool:
            self.check()
            return all(member.owned <= {got.place for got in member.got} for member in self.present)

        wait_until(flows, "messages from all partitions", seen=self.present)

    def wait_for(self, count: int) -> None:
        """So many messages have come to some member."""

        def have_come() -> bool:
            self.check()
            return len({(got.place, got.offset) for member in self.all for got in member.got}) >= count

        wait_until(have_come, f"{count} messages", seen=self.present)

    def got(self) -> Counter[bytes]:
        """How often each message was delivered to any member."""
        return Counter(got.value for member in self.all for got in member.got)

    def check_once(self, count: int) -> None:
        """All messages, numbered from 0, have come, and those of partitions that were committed by all only once."""
        uncommitted = {place: why for member in self.all for place, why in member.uncommitted.items()}
        got = {each for member in self.all for each in member.got}
        assert Counter(each.value for each in got) == {b"%d" % number: 1 for number in range(count)}
        counts = Counter(each for member in self.all for each in member.got)
        again = sorted(each for each, times in counts.items() if times > 1 and each.place not in uncommitted)
        histories = {member.name: (member.history, member.uncommitted) for member in self.all}
        assert not again, f"{len(again)} came more than once, as {again[0]}: {histories}"

    def check_order(self) -> None:
        """Checks that each member gets the messages of a partition in order."""
        for member in self.all:
            last: dict[Place, int] = {}
            for got in member.got:
                assert got.offset > last.get(got.place, -1), (member.name, got)
                last[got.place] = got.offset

    def stop(self) -> None:
        """All leave together: no member gets the partitions of another one."""
        for member in self.present:
            member.tell_to_stop()
        for member in list(self.present):
            self.leave(member)


@contextmanager
def crew(bootstrap: str, group: str, **options: Any) -> Iterator[Crew]:
    """`with crew(broker.kafka, "group", topics=("orders",)) as members: members.join("aiokafka")`."""
    members = Crew(bootstrap, group, **options)
    try:
        yield members
        members.stop()
    finally:
        for member in members.present:
            member.tell_to_stop()
        for member in members.present:
            member.join(PATIENCE_S)


def places_of(topic: str, partitions: int) -> list[Place]:
    return [(topic, number) for number in range(partitions)]


class Load:
    """Something that is done over and over on a thread until it is stopped."""

    def __init__(self, step: Callable[[int], None], pause_s: float) -> None:
        self._step = step
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self._failure = ""
        self.steps = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._pause_s):
                self._step(self.steps)
                self.steps += 1
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
            self._failure = described(error)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._failure, f"the load has failed: {self._failure}"
