"""Queues in the store, and what follows from their settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster import keys
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.queue_changes import find_queue, plan_queue, queue_of, queues_on, sources_of, topic_for
from penstock.cluster.queues import (
    ALLOW_ALL,
    BY_QUEUE,
    DENY_ALL,
    SCOPE_GROUP,
    SCOPE_QUEUE,
    MoveStatus,
    MoveTask,
    NameTaken,
    NoSuchQueue,
    Queue,
    QueueExists,
    QueueSettings,
    Redrive,
    RedriveAllow,
    TooManyQueues,
)
from penstock.coordination.store import ABSENT, Change, Check, Put, Versioned
from penstock.foundation.ids import uuid_text

TOPIC = bytes(range(16))
OTHER = bytes(range(1, 17))
names = st.text(st.characters(codec="utf-8"), max_size=20)
numbers = st.integers(0, 2**40)
settings = st.builds(
    QueueSettings,
    visibility_timeout_s=numbers,
    delay_s=numbers,
    wait_s=numbers,
    message_bytes_max=numbers,
    retention_s=numbers,
    is_fifo=st.booleans(),
    content_based_deduplication=st.booleans(),
    deduplication_scope=st.sampled_from([SCOPE_QUEUE, SCOPE_GROUP]),
    redrive=st.none() | st.builds(Redrive, queue=names, max_receive_count=numbers),
    redrive_allow=st.builds(
        RedriveAllow, permission=st.sampled_from([ALLOW_ALL, DENY_ALL, BY_QUEUE]), queues=st.tuples(names, names)
    ),
    partitions=numbers,
    others=st.dictionaries(names, names),
)
queues = st.builds(
    Queue,
    name=names,
    topic_id=st.binary(min_size=16, max_size=16),
    owner=names,
    created_ms=numbers,
    modified_ms=numbers,
    is_attached=st.booleans(),
    settings=settings,
    tags=st.dictionaries(names, names),
)


@given(queues)
def test_a_queue_is_read_back_as_it_was_written(queue: Queue) -> None:
    assert Queue.read(queue.name, keys.decode(queue.dump())) == queue


@given(st.sampled_from(MoveStatus), numbers, names)
def test_a_move_task_is_read_back(status: MoveStatus, number: int, text: str) -> None:
    task = MoveTask(
        handle=text, source=text, topic_id=TOPIC, per_second=number, status=status, moved=number, failure=text
    )
    assert MoveTask.read(keys.decode(keys.encode(task.dump()))) == task


def test_default_values_are_not_stored() -> None:
    assert QueueSettings().dump() == {}
    assert QueueSettings(delay_s=5).dump() == {"delay_s": 5}


def test_the_number_of_partitions_follows_from_brokers_unless_one_leader_must_know_all() -> None:
    assert [QueueSettings().topic_partitions(count) for count in (0, 1, 3, 8, 50)] == [1, 1, 3, 8, 8]
    assert QueueSettings(partitions=30).topic_partitions(3) == 30
    assert QueueSettings(is_fifo=True, partitions=30).topic_partitions(3) == 1
    assert QueueSettings(is_fifo=True, deduplication_scope=SCOPE_GROUP).topic_partitions(3) == 3


def test_the_redrive_allow_policy_decides_which_queues_may_send_dead_letters() -> None:
    assert RedriveAllow().allows("a")
    assert not RedriveAllow(permission=DENY_ALL).allows("a")
    some = RedriveAllow(permission=BY_QUEUE, queues=("a",))
    assert [some.allows(name) for name in "ab"] == [True, False]


def image_of(*queues: Queue, topic: Topic | None = None) -> ClusterImage:
    """A cluster with one topic, and what the store says of queues."""
    topic = topic or Topic(topic_id=TOPIC, name="jobs", is_queue=True, version=3)
    states = {keys.queue(queue.name): Versioned(value=queue.dump(), version=5) for queue in queues}
    image = ClusterImage().with_change(Change(revision=1, states=states, snapshot=True))
    return ClusterImage(
        topics={TOPIC: topic}, by_name={topic.name: topic}, queues=image.queues, versions=image.versions
    )


def test_a_queue_is_there_when_its_topic_is() -> None:
    here, gone = Queue(name="jobs", topic_id=TOPIC), Queue(name="old", topic_id=OTHER)
    image = image_of(here, gone)
    assert (find_queue(image, "jobs"), find_queue(image, "old")) == (here, None)
    with pytest.raises(NoSuchQueue, match="create it"):
        queue_of(image, "old")
    assert queues_on(image, TOPIC) == [here]


def test_a_queue_is_made_on_the_condition_of_its_topic() -> None:
    queue = Queue(name="jobs", topic_id=TOPIC)
    assert plan_queue(image_of(), queue) == [
        Check(f"topics/{uuid_text(TOPIC)}", 3),
        Put("queues/jobs", queue.dump(), ABSENT),
    ]
    with pytest.raises(QueueExists):
        plan_queue(image_of(queue), queue)
    left_over = Queue(name="jobs", topic_id=OTHER)
    assert plan_queue(image_of(left_over), queue)[1] == Put("queues/jobs", queue.dump(), 5)
    with pytest.raises(TooManyQueues):
        plan_queue(image_of(*(Queue(name=str(number), topic_id=TOPIC) for number in range(32))), queue)


def test_only_a_topic_that_was_made_for_a_queue_is_taken_for_one() -> None:
    assert topic_for(image_of(), "jobs") is not None
    assert topic_for(image_of(), "nowhere") is None
    with pytest.raises(NameTaken):
        topic_for(image_of(topic=Topic(topic_id=TOPIC, name="jobs")), "jobs")


def test_the_sources_of_a_dead_letter_queue_are_listed() -> None:
    redrive = QueueSettings(redrive=Redrive(queue="dead", max_receive_count=3))
    one = Queue(name="one", topic_id=TOPIC, settings=redrive)
    gone = Queue(name="gone", topic_id=OTHER, settings=redrive)
    image = image_of(one, gone, Queue(name="two", topic_id=TOPIC))
    assert sources_of(image, "dead") == [one]
    assert sources_of(image, "two") == []


def test_a_topic_of_a_queue_is_marked_in_the_store() -> None:
    topic = Topic(topic_id=TOPIC, name="jobs", count=1, is_queue=True, companion=OTHER)
    assert Topic.read(TOPIC, keys.decode(topic.dump()), 0) == topic
    plain = Topic(topic_id=TOPIC, name="jobs", count=1)
    assert "queue" not in keys.decode(plain.dump())
    assert Topic.read(TOPIC, keys.decode(plain.dump()), 0) == plain
