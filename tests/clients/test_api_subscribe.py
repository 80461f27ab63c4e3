"""Subscribing with the Python API: groups, start positions, commits."""

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest
from confluent_kafka.admin import NewPartitions

import penstock
from penstock import Connection, Message, Outgoing
from penstock.foundation.codes import ErrorCode
from tests.brokers import BrokerProcess

from .api_lab import IDLE_S, all_of, committed, connect, new_group, new_topic, numbers
from .conftest import QUICK_GROUPS
from .driver_confluent import ConfluentDriver
from .drivers import NOW_MS
from .waiting import PATIENCE_S, wait_until


@pytest.fixture
def mq(group_broker: BrokerProcess) -> Iterator[Connection]:
    with connect(group_broker.kafka, refresh_s=0.2) as connection:
        yield connection


@pytest.fixture
def topic(group_broker: BrokerProcess) -> str:
    return new_topic(group_broker.kafka)


@pytest.fixture
def group() -> str:
    return new_group()


def rest(mq: Connection, topic: str, group: str) -> list[int]:
    """What a group has not committed yet."""
    return numbers(mq.subscribe(topic, group=group, idle_timeout_s=IDLE_S))


# -- groups


def test_a_group_goes_on_where_it_was(mq: Connection, topic: str, group: str) -> None:
    mq.publish_many(topic, range(10))
    assert numbers(mq.subscribe(topic, group=group, limit=4)) == [0, 1, 2, 3]
    assert rest(mq, topic, group) == [4, 5, 6, 7, 8, 9]
    mq.publish(topic, 10)
    assert rest(mq, topic, group) == [10]
    assert rest(mq, topic, new_group()) == list(range(11))


def test_members_share_the_partitions_and_every_message_is_one_member_s(
    mq: Connection, group_broker: BrokerProcess, group: str
) -> None:
    topic = new_topic(group_broker.kafka, partitions=4)
    got: dict[str, list[int]] = {"first": [], "second": []}
    members = {name: mq.subscribe(topic, group=group) for name in got}

    def work(name: str) -> None:
        for message in members[name]:
            got[name].append(message.json())

    workers = [threading.Thread(target=work, args=(name,)) for name in got]
    for worker in workers:
        worker.start()
    for number in range(200):  # while they find each other
        mq.publish(topic, number)
    mq.publish_many(topic, range(200, 600))
    wait_until(lambda: {n for each in got.values() for n in each} == set(range(600)), "every message, seen by one")
    wait_until(lambda: all(got.values()), "both have some")
    for member in members.values():
        member.close()
    for worker in workers:
        worker.join(PATIENCE_S)
        assert not worker.is_alive()
    everything = got["first"] + got["second"]
    assert len(everything) - len(set(everything)) < 200  # what was in flight when partitions moved may come twice
    assert rest(mq, topic, group) == []


def test_a_member_that_leaves_gives_its_partitions_to_the_others(
    mq: Connection, group_broker: BrokerProcess, group: str
) -> None:
    topic = new_topic(group_broker.kafka, partitions=2)
    staying = mq.subscribe(topic, group=group, limit=10)
    leaving = mq.subscribe(topic, group=group)
    got: list[int] = []
    worker = threading.Thread(target=lambda: got.extend(numbers(staying)))
    worker.start()
    leaving.ready()
    leaving.close()
    mq.publish_many(topic, [Outgoing(number, partition=number % 2) for number in range(10)])
    worker.join(PATIENCE_S)
    assert sorted(got) == list(range(10))


def test_the_new_protocol_serves_as_well(group_broker: BrokerProcess, group: str) -> None:
    """KIP-848: the broker assigns the partitions."""
    topic = new_topic(group_broker.kafka, partitions=3)
    with penstock.connect(group_broker.kafka, options={"group.protocol": "consumer"}) as mq:
        mq.publish_many(topic, range(30))
        assert sorted(numbers(mq.subscribe(topic, group=group, limit=30))) == list(range(30))
        assert rest(mq, topic, group) == []


def test_a_group_may_assign_all_or_nothing(group_broker: BrokerProcess, group: str) -> None:
    topic = new_topic(group_broker.kafka, partitions=3)
    with connect(group_broker.kafka, options={"partition.assignment.strategy": "range"}) as mq:
        mq.publish_many(topic, range(30))
        assert sorted(numbers(mq.subscribe(topic, group=group, limit=30, from_=0))) == list(range(30))
        assert rest(mq, topic, group) == []


# -- at least once


def test_a_message_that_fails_is_not_committed_and_comes_again(mq: Connection, topic: str, group: str) -> None:
    mq.publish_many(topic, range(5))

    def handle() -> None:
        for message in mq.subscribe(topic, group=group):
            if message.json() == 2:
                raise RuntimeError("this one is bad")

    with pytest.raises(RuntimeError):
        handle()
    assert rest(mq, topic, group) == [2, 3, 4]


def test_a_break_does_not_commit_the_current_message_unless_it_is_done(
    mq: Connection, topic: str, group: str
) -> None:
    mq.publish_many(topic, range(4))
    for message in mq.subscribe(topic, group=group):
        if message.json() == 1:
            break
    for message in mq.subscribe(topic, group=group):
        assert message.json() == 1
        message.done()
        break
    assert rest(mq, topic, group) == [2, 3]


def test_a_message_can_be_retried(mq: Connection, topic: str, group: str) -> None:
    mq.publish_many(topic, range(3))
    seen = []
    for message in mq.subscribe(topic, group=group, idle_timeout_s=IDLE_S):
        seen.append((message.json(), message.attempt))
        if message.json() == 1 and message.attempt < 3:
            message.retry(delay_s=0.05)
    assert seen == [(0, 1), (1, 1), (1, 2), (1, 3), (2, 1)]
    assert rest(mq, topic, group) == []


def test_finished_messages_are_committed_while_the_loop_runs(
    mq: Connection, topic: str, group: str, group_broker: BrokerProcess
) -> None:
    mq.publish_many(topic, range(3))
    with mq.subscribe(topic, group=group, commit_every_s=0.1) as messages:
        assert [next(messages).json() for _ in range(3)] == [0, 1, 2]
        waiting = threading.Thread(target=next, args=(messages, None))  # it waits, and the third is finished
        waiting.start()
        wait_until(lambda: committed(group_broker, group, topic) == 3, "the commit")
        messages.close()
        waiting.join(PATIENCE_S)


def test_workers_may_have_several_messages_in_flight(mq: Connection, topic: str, group: str) -> None:
    mq.publish_many(topic, range(200))
    in_flight, most, lock = 0, 0, threading.Lock()
    done: list[int] = []

    def work(message: Message) -> None:
        nonlocal in_flight
        done.append(message.json())
        with lock:
            in_flight -= 1
        message.done()

    for message in mq.subscribe(topic, group=group, max_in_flight=8, idle_timeout_s=IDLE_S):
        with lock:
            in_flight += 1
            most = max(most, in_flight)
        threading.Timer(0.002, work, [message]).start()
    assert sorted(done) == list(range(200))
    assert 1 < most <= 8
    assert rest(mq, topic, group) == []


def test_batches_are_finished_together(mq: Connection, topic: str, group: str) -> None:
    mq.publish_many(topic, range(100))
    sizes = []
    for batch in mq.subscribe(topic, group=group, limit=60).batches(25):
        sizes.append(len(batch))
        assert len(batch) <= 25
    assert sum(sizes) == 60
    assert rest(mq, topic, group) == list(range(60, 100))


def test_a_slow_member_is_removed_from_the_group_and_gets_an_error(
    group_broker: BrokerProcess, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="penstock.api")
    with penstock.connect(group_broker.kafka, options={"heartbeat.interval.ms": 100}) as mq:
        mq.publish_many(topic, range(2))
        slow = mq.subscribe(topic, group=group, processing_timeout_s=1, idle_timeout_s=1)
        assert next(slow).json() == 0
        assert numbers(mq.subscribe(topic, group=group, limit=2)) == [0, 1]  # they belong to another member by now
        assert numbers(slow) == []
    assert "processing_took_too_long" in caplog.text


# -- at most once


def test_at_most_once_commits_before_the_message_is_seen(
    mq: Connection, topic: str, group: str, group_broker: BrokerProcess
) -> None:
    mq.publish_many(topic, range(5))
    with mq.subscribe(topic, group=group, delivery="at-most-once", prefetch=1) as messages:
        assert next(messages).json() == 0
        assert committed(group_broker, group, topic) == 1
    assert rest(mq, topic, group) == [1, 2, 3, 4]


def test_at_most_once_does_not_commit_undelivered_messages(
    mq: Connection, topic: str, group: str, group_broker: BrokerProcess
) -> None:
    mq.publish_many(topic, range(50))
    with mq.subscribe(topic, group=group, delivery="at-most-once") as messages:
        assert [next(messages).json() for _ in range(10)] == list(range(10))
        assert (committed(group_broker, group, topic) or 0) > 10
    assert rest(mq, topic, group) == list(range(10, 50))


def test_at_most_once_cannot_be_retried(mq: Connection, topic: str, group: str) -> None:
    mq.publish(topic, 0)
    with mq.subscribe(topic, group=group, delivery="at-most-once") as messages:
        message = next(messages)
        with pytest.raises(penstock.InvalidArgument, match="at-least-once"):
            message.retry()


# -- exactly once, for effects elsewhere


def test_exactly_once_needs_to_know_what_makes_two_messages_the_same(mq: Connection, topic: str, group: str) -> None:
    with pytest.raises(penstock.InvalidArgument, match=r"mq\.process\(\) or mq\.exactly_once\(\).*idempotent_by="):
        mq.subscribe(topic, group=group, delivery="exactly-once")


def test_a_message_that_was_handled_is_passed_over_even_after_a_restart(
    mq: Connection, topic: str, group: str, tmp_path: Path
) -> None:
    mq.publish_many(topic, [1, 2, 1, 3, 2])
    store = tmp_path / "handled.sqlite"
    charged: list[int] = []

    def charge(limit: int | None = None) -> None:
        messages = mq.subscribe(
            topic,
            group=group,
            delivery="exactly-once",
            idempotent_by=lambda each: each.json(),
            store=store,
            limit=limit,
            idle_timeout_s=IDLE_S,
        )
        charged.extend(numbers(messages))

    charge(limit=2)
    mq.seek(group, topic, to="earliest")
    mq.publish(topic, 4)
    charge()
    assert charged == [1, 2, 3, 4]
    assert rest(mq, topic, group) == []


def test_a_group_s_store_is_kept_on_this_machine_unless_one_is_given(
    mq: Connection, topic: str, group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    mq.publish(topic, 1)
    assert numbers(mq.subscribe(topic, group=group, idempotent_by=lambda each: each.json(), limit=1)) == [1]
    assert [path.name for path in tmp_path.rglob("*.sqlite")] == [f"{group}.sqlite"]


# -- which messages


def test_only_messages_with_a_wanted_tag_are_seen(mq: Connection, topic: str, group: str) -> None:
    mq.publish_many(topic, [Outgoing(number, tag=("eu", "uk", "us", None)[number % 4]) for number in range(12)])
    assert numbers(mq.subscribe(topic, tags="eu", idle_timeout_s=IDLE_S)) == [0, 4, 8]
    assert numbers(mq.subscribe(topic, group=group, tags=["eu", "uk"], idle_timeout_s=IDLE_S)) == [0, 1, 4, 5, 8, 9]
    assert rest(mq, topic, group) == []


def test_aborted_messages_are_never_seen_and_open_ones_only_when_they_count(
    mq: Connection, topic: str, group: str
) -> None:
    with mq.transaction(f"{topic}-good") as tx:
        tx.publish(topic, 1)
    with suppress(RuntimeError), mq.transaction(f"{topic}-bad") as tx:
        tx.publish(topic, 2)
        raise RuntimeError
    with mq.transaction(f"{topic}-good") as tx:
        tx.publish(topic, 3)
        assert all_of(mq, topic) == [1]
        assert rest(mq, topic, group) == [1]
    assert all_of(mq, topic) == [1, 3]


# -- where to begin


def test_a_reader_without_a_group_starts_anywhere_and_commits_nothing(
    mq: Connection, group_broker: BrokerProcess
) -> None:
    topic = new_topic(group_broker.kafka, partitions=2)
    begin_ms = NOW_MS - 100_000
    mq.publish_many(topic, [Outgoing(n, partition=n % 2, timestamp=begin_ms + 1000 * n) for n in range(10)])

    def read(from_: penstock.api.core.cluster_lookup.From) -> list[int]:
        return sorted(numbers(mq.subscribe(topic, from_=from_, idle_timeout_s=IDLE_S)))

    assert read("earliest") == list(range(10))
    assert read("latest") == []
    assert read(3) == [6, 7, 8, 9]
    assert read(-1) == [8, 9]
    moment = datetime.fromtimestamp(begin_ms / 1000, UTC)
    assert read(moment + timedelta(seconds=6.5)) == [7, 8, 9]
    assert read(moment + timedelta(hours=1)) == []
    with pytest.raises(penstock.SubscribeFailed, match="offset 6 is not there") as caught:
        read(6)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_reader_at_the_end_sees_what_comes_from_then_on(mq: Connection, topic: str) -> None:
    mq.publish(topic, 0)
    with mq.subscribe(topic, from_="latest", limit=1) as messages:
        mq.publish(topic, 1)
        assert numbers(messages) == [1]


@pytest.mark.parametrize(("from_", "expected"), [("earliest", [0, 1, 2, 3, 4]), (2, [2, 3, 4]), (-1, [4])])
def test_a_group_without_commits_starts_at_the_given_position(
    mq: Connection, topic: str, group: str, from_: penstock.api.core.cluster_lookup.From, expected: list[int]
) -> None:
    mq.publish_many(topic, range(5))
    assert numbers(mq.subscribe(topic, group=group, from_=from_, idle_timeout_s=IDLE_S)) == expected
    mq.publish(topic, 5)
    assert numbers(mq.subscribe(topic, group=group, from_=from_, idle_timeout_s=IDLE_S)) == [5]


def test_a_group_that_begins_at_the_end_misses_nothing_from_then_on(mq: Connection, topic: str, group: str) -> None:
    """Even if its first member goes before it has seen anything."""
    mq.publish(topic, 0)
    mq.subscribe(topic, group=group, from_="latest").ready().close()
    mq.publish(topic, 1)
    assert numbers(mq.subscribe(topic, group=group, from_="latest", idle_timeout_s=IDLE_S)) == [1]


def test_trimmed_messages_are_skipped(mq: Connection, topic: str, group: str, group_broker: BrokerProcess) -> None:
    mq.publish_many(topic, range(10))
    assert numbers(mq.subscribe(topic, group=group, limit=2)) == [0, 1]
    ConfluentDriver(group_broker.kafka).trim(topic, 5)
    assert rest(mq, topic, group) == [5, 6, 7, 8, 9]


def test_a_group_can_be_moved_after_its_broker_was_restarted(
    own_broker: Callable[..., BrokerProcess], group: str
) -> None:
    """librdkafka remembers a coordinator whose connection it has given up."""
    broker = own_broker(QUICK_GROUPS)
    topic = new_topic(broker.kafka)
    with connect(broker.kafka) as mq:
        mq.publish_many(topic, range(10))
        assert mq.seek(group, topic, to=3) == {0: 3}
        broker.kill()
        broker.start()
        assert mq.seek(group, topic, to=4) == {0: 4}


def test_offsets_of_a_group_can_be_set_while_it_has_no_members(mq: Connection, topic: str, group: str) -> None:
    mq.publish_many(topic, range(10))
    with mq.subscribe(topic, group=group, limit=10) as messages:
        next(messages)
        with pytest.raises(penstock.Busy, match="penstock group describe") as caught:
            mq.seek(group, topic, to="earliest")
        assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
        assert numbers(messages) == list(range(1, 10))
    assert rest(mq, topic, group) == []
    assert mq.seek(group, topic, to=7) == {0: 7}
    assert rest(mq, topic, group) == [7, 8, 9]
    assert mq.seek(group, topic, to="earliest") == {0: 0}
    assert rest(mq, topic, group) == list(range(10))
    assert mq.seek(group, topic, to=-1) == {0: 9}
    assert mq.seek(group, topic, to="latest") == {0: 10}
    assert mq.seek(new_group(), topic, to=datetime.now(UTC)) == {0: 10}


def test_a_group_cannot_be_moved_to_where_nothing_is(mq: Connection, topic: str, group: str) -> None:
    with pytest.raises(penstock.SubscribeFailed) as caught:
        mq.seek(group, topic, to=5)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(penstock.UnknownTopic) as unknown:
        mq.seek(group, "there-is-no-such-topic", to="earliest")
    assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- topics


def test_several_topics_can_be_read_together(mq: Connection, group_broker: BrokerProcess, group: str) -> None:
    topics = [new_topic(group_broker.kafka) for _ in range(3)]
    for number, topic in enumerate(topics):
        mq.publish(topic, number)
    assert sorted(numbers(mq.subscribe(topics, group=group, idle_timeout_s=IDLE_S))) == [0, 1, 2]
    assert sorted(numbers(mq.subscribe(iter(topics), idle_timeout_s=IDLE_S))) == [0, 1, 2]


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_pattern_finds_topics_that_are_made_later(
    mq: Connection, group_broker: BrokerProcess, group: str, is_alone: bool
) -> None:
    stem = f"pattern-{group}"
    pattern = re.compile(rf"{stem}-\d+")
    with mq.subscribe(pattern, group=None if is_alone else group, limit=2) as messages:
        ConfluentDriver(group_broker.kafka).create_topic(f"{stem}-1")
        ConfluentDriver(group_broker.kafka).create_topic(f"{stem}-x")
        mq.publish(f"{stem}-x", "not this one")
        mq.publish(f"{stem}-1", 1)
        assert next(messages).json() == 1
        ConfluentDriver(group_broker.kafka).create_topic(f"{stem}-22")
        mq.publish(f"{stem}-22", 2)
        assert next(messages).json() == 2


def test_a_reader_alone_finds_new_partitions(mq: Connection, topic: str, group_broker: BrokerProcess) -> None:
    with mq.subscribe(topic, from_="latest", limit=1) as messages:
        admin = ConfluentDriver(group_broker.kafka).admin
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result()
        wait_until(lambda: len(admin.list_topics(topic).topics[topic].partitions) == 2, "the new partition")
        with connect(group_broker.kafka) as other:
            other.publish(topic, 7, partition=1)
        assert numbers(messages) == [7]


def test_a_topic_that_does_not_exist_is_refused_and_not_created(
    mq: Connection, group_broker: BrokerProcess, topic: str, group: str
) -> None:
    typo = topic + "s"
    loops: list[Callable[[], object]] = [
        lambda: mq.subscribe(typo),
        lambda: mq.subscribe([topic, typo], group=group),
        lambda: mq.subscribe(typo, group=group, where="tag = 'eu'"),
        lambda: mq.exactly_once(typo, group=group),
        lambda: mq.process(typo, "results", group=group, transform=lambda message: None),
    ]
    for subscribe in loops:
        with pytest.raises(penstock.UnknownTopic, match=f"'{typo}' does not exist .there is '{topic}'") as caught:
            subscribe()
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert typo not in ConfluentDriver(group_broker.kafka).admin.list_topics().topics


def test_a_topic_that_does_not_exist_is_created_where_the_subscription_and_the_broker_allow_it(
    own_broker: Callable[..., BrokerProcess], group: str
) -> None:
    lenient = own_broker(QUICK_GROUPS)
    with connect(lenient.kafka) as mq:
        messages = mq.subscribe("new", group=group, limit=1, missing="create").ready()
        mq.publish("new", 1)
        assert numbers(messages) == [1]
    strict = own_broker({**QUICK_GROUPS, "auto.create.topics.enable": False})
    with connect(strict.kafka, timeout_s=2) as mq:
        for alone_or_not in (None, group):
            with pytest.raises(penstock.UnknownTopic, match="penstock topic create") as caught:
                mq.subscribe("new", group=alone_or_not, missing="create")
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("from_", ["earliest", "latest"])
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_topic_that_does_not_exist_is_waited_for(
    mq: Connection,
    group_broker: BrokerProcess,
    topic: str,
    group: str,
    is_alone: bool,
    from_: Literal["earliest", "latest"],
    caplog: pytest.LogCaptureFixture,
) -> None:
    later = f"{topic}-later-{group}"
    admin = ConfluentDriver(group_broker.kafka)
    member = None if is_alone else group
    with mq.subscribe([topic, later], group=member, from_=from_, missing="wait").ready() as messages:
        mq.publish(topic, 1)
        assert next(messages).json() == 1
        assert later not in admin.admin.list_topics().topics
        admin.create_topic(later)
        mq.publish(later, 2)
        assert next(messages).json() == 2, "from its beginning, for all of it is new"
        if not is_alone:
            return  # librdkafka's view of a topic that is deleted and created again is its own
        admin.admin.delete_topics([later])[later].result()
        while caplog.text.count(f"topics_awaited topics={later} ") < 2:  # once before it was created
            mq.publish(topic, 3)
            assert next(messages).json() == 3
        admin.create_topic(later)
        mq.publish(later, 4)
        assert next(messages).json() == 4, "from its beginning again"


def test_the_option_for_missing_topics_is_validated(mq: Connection, topic: str) -> None:
    with pytest.raises(penstock.InvalidArgument, match="'error', 'wait', 'create'"):
        mq.subscribe(topic, missing="ignore")  # type: ignore[arg-type]
    with pytest.raises(penstock.InvalidArgument, match="cannot be combined"):
        mq.subscribe(topic, where="tag = 'eu'", missing="wait")


def test_a_subscription_that_has_failed_stays_so(own_broker: Callable[..., BrokerProcess], group: str) -> None:
    """It may have lost track of its partitions: a loop that went on would skip messages unnoticed."""
    broker = own_broker()
    topic = new_topic(broker.kafka)
    too_short = {"session.timeout.ms": 3000}
    with connect(broker.kafka, options=too_short) as mq, mq.subscribe(topic, group=group) as messages:
        for _ in range(2):
            with pytest.raises(penstock.SubscribeFailed, match="processing_timeout_s") as caught:
                next(messages)
            assert caught.value.code is ErrorCode.INVALID_SESSION_TIMEOUT


# -- the end


def test_a_loop_can_be_ended_from_another_thread(mq: Connection, topic: str, group: str) -> None:
    for messages in (mq.subscribe(topic), mq.subscribe(topic, group=group)):
        waiting = threading.Thread(target=lambda messages=messages: numbers(messages))
        waiting.start()
        messages.close()
        waiting.join(PATIENCE_S)
        assert not waiting.is_alive()
        assert numbers(messages) == []


def test_a_loop_that_is_left_and_forgotten_leaves_its_group(mq: Connection, topic: str, group: str) -> None:
    mq.publish_many(topic, range(3))
    for _ in mq.subscribe(topic, group=group):
        break
    assert mq.seek(group, topic, to="latest") == {0: 3}  # which is refused while there are members


def test_a_connection_lasts_as_long_as_its_loops(group_broker: BrokerProcess, topic: str) -> None:
    messages = connect(group_broker.kafka).subscribe(topic, limit=1)
    with connect(group_broker.kafka) as mq:
        mq.publish(topic, 1)
    assert numbers(messages) == [1]


def test_not_being_assigned_anything_in_time_is_an_error(mq: Connection, topic: str, group: str) -> None:
    with mq.subscribe(topic, group=group) as messages:
        with pytest.raises(penstock.NotConnected, match="no partitions were assigned") as caught:
            messages.ready(timeout_s=1e-9)
        assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        messages.ready()
    closed = mq.subscribe(topic, group=group)
    closed.close()
    with pytest.raises(penstock.Closed):
        closed.ready()


def test_a_subscription_goes_on_when_its_broker_comes_back(
    own_broker: Callable[..., BrokerProcess], group: str
) -> None:
    broker = own_broker(QUICK_GROUPS)
    topic = new_topic(broker.kafka)
    with connect(broker.kafka) as mq:
        mq.publish_many(topic, range(3))
        messages = mq.subscribe(topic, group=group, limit=6)
        assert [next(messages).json() for _ in range(3)] == [0, 1, 2]
        broker.kill()
        broker.start()
        mq.publish_many(topic, range(3, 6))
        assert set(numbers(messages)) | set(rest(mq, topic, group)) >= {3, 4, 5}
