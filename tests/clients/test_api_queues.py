"""mq.queue(…) against a real broker: sending, receiving, and what becomes of messages."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

import penstock
from penstock import Connection, OutgoingJob, Queue
from tests.brokers import BrokerProcess

from .api_lab import connect, new_topic, threads
from .queue_lab import new_name, with_credentials
from .waiting import wait_until

PATIENCE = "20s"


@pytest.fixture(scope="module")
def mq(broker: BrokerProcess) -> Iterator[Connection]:
    with connect(broker.kafka) as connection:
        yield connection


@pytest.fixture
def queue(mq: Connection) -> Queue:
    return mq.create_queue(new_name())


def test_a_message_is_received_with_all_its_attributes(queue: Queue) -> None:
    attributes = {"tenant": "eu", "size": 7, "ratio": Decimal("0.25"), "raw": b"\xff\x00"}
    sent = queue.send({"id": 1}, attributes=attributes)
    (job,) = queue.receive(max=10, wait=PATIENCE)
    assert (job.json(), job.body, job.value) == ({"id": 1}, '{"id":1}', b'{"id":1}')
    assert job.attributes == attributes
    assert (job.queue, job.message_id, job.receive_count) == (queue.name, sent.message_id, 1)
    assert 0 < job.sent_ms <= job.first_received_ms
    job.delete()
    assert queue.counts().total == 0


def test_many_messages_keep_their_order_and_are_counted(queue: Queue) -> None:
    sent = queue.send_many([*({"n": n} for n in range(24)), OutgoingJob("last", delay="10m")])
    assert len({each.message_id for each in sent}) == 25
    counts = queue.counts()
    assert (counts.available, counts.in_flight, counts.delayed, counts.total) == (24, 0, 1, 25)
    found = queue.receive(max=30, wait=PATIENCE)
    assert sorted(job.json()["n"] for job in found) == list(range(24))
    assert queue.counts().in_flight == 24


def test_a_batch_reports_the_message_that_is_refused_and_sends_the_others(queue: Queue) -> None:
    wrong = OutgoingJob("b", attributes={"no blanks please": "x"})
    with pytest.raises(penstock.SendFailed, match=r"1 of 12 messages were not sent .* message 1: ") as failed:
        queue.send_many(["a", wrong, *("c" * 10)])
    assert list(failed.value.failed) == [1]
    assert [each is None for each in failed.value.sent] == [False, True] + [False] * 10
    assert failed.value.reason == "InvalidParameterValue"
    assert queue.counts().available == 11


def test_messages_behind_a_failed_one_in_a_fifo_queue_do_not_overtake_it(mq: Connection) -> None:
    queue = mq.create_queue(f"{new_name()}.fifo", content_based_deduplication=True)
    messages = [OutgoingJob({"n": n}, group="g") for n in range(25)]
    messages[3] = OutgoingJob("x", group="g", attributes={"no blanks please": "x"})
    with pytest.raises(penstock.SendFailed) as failed:
        queue.send_many(messages)
    assert sorted(failed.value.failed) == [3, *range(10, 25)]
    assert queue.counts().available == 9


def test_a_message_that_is_released_comes_again(queue: Queue) -> None:
    queue.send("x")
    (job,) = queue.receive(wait=PATIENCE, visibility="10m")
    assert queue.receive() == []
    job.release()
    (again,) = queue.receive(wait=PATIENCE, visibility="10m")
    assert (again.message_id, again.receive_count) == (job.message_id, 2)
    again.release(timedelta(minutes=5))
    assert queue.receive() == []
    assert queue.counts().total == 1


def test_a_message_that_was_delivered_to_another_worker_is_lost(queue: Queue) -> None:
    queue.send("x")
    (slow,) = queue.receive(wait=PATIENCE, visibility=1)
    (quick,) = queue.receive(wait=PATIENCE, visibility="10m")
    assert quick.receive_count == 2
    with pytest.raises(penstock.JobLost, match="no longer in flight"):
        slow.delete()
    slow.extend("1m")  # with AWS, too, any receipt of a message changes its timeout
    quick.extend("11m")
    quick.delete()
    quick.delete()  # twice is fine


def test_a_block_says_what_became_of_its_message(queue: Queue) -> None:
    queue.send_many(["good", "bad"])
    good, bad = queue.receive(max=2, wait=PATIENCE, visibility="10m")
    with good:
        pass
    with pytest.raises(ZeroDivisionError), bad:
        1 / 0  # noqa: B018
    assert queue.counts().total == 1
    (again,) = queue.receive(wait=PATIENCE)
    assert again.message_id == bad.message_id
    with again:
        again.release("5m")  # what was said counts, and nothing more is said at the end
    assert queue.counts().total == 1


def test_a_queue_on_a_topic_has_what_kafka_clients_publish(mq: Connection, broker: BrokerProcess) -> None:
    topic = new_topic(broker.kafka)
    mq.publish(topic, b"\xff\xfe", headers={"trace": "abc"})
    queue = mq.create_queue(new_name(), from_topic=topic)
    (job,) = queue.receive(wait=PATIENCE)
    assert job.value == b"\xff\xfe"
    assert job.attributes == {"trace": "abc"}
    with pytest.raises(penstock.InvalidValue, match=r"not UTF-8 .* job\.value"):
        _ = job.body
    with pytest.raises(penstock.InvalidValue, match=r"not JSON"):
        job.json()
    queue.send("sent")
    assert [message.value for message in mq.subscribe(topic, limit=2)] == [b"\xff\xfe", b"sent"]


def test_a_fifo_queue_drops_duplicates_and_keeps_groups_in_order(mq: Connection) -> None:
    queue = mq.create_queue(f"{new_name()}.fifo", fifo=True)
    first = queue.send("a", group="g", deduplication_id="1")
    assert queue.send("a", group="g", deduplication_id="1").message_id == first.message_id
    assert queue.send("b", group="g", deduplication_id="2").sequence > first.sequence
    with pytest.raises(penstock.InvalidArgument, match="MessageGroupId"):
        queue.send("no group", deduplication_id="3")
    found = queue.receive(max=10, wait=PATIENCE)
    assert [(job.body, job.group, job.deduplication_id) for job in found] == [("a", "g", "1"), ("b", "g", "2")]


def test_queues_are_made_listed_purged_and_deleted(mq: Connection) -> None:
    prefix = new_name()
    dead = mq.create_queue(f"{prefix}-dead", retention="30d", tags={"team": "eu"})
    mq.create_queue(f"{prefix}-a", visibility="1m", delay=5, wait="1s", dead_letter=dead, max_receives=2)
    mq.create_queue(f"{prefix}-a", visibility="1m", delay=5, wait="1s", dead_letter=dead, max_receives=2)
    with pytest.raises(penstock.QueueFailed, match="different value") as taken:
        mq.create_queue(f"{prefix}-a", visibility="2m")
    assert taken.value.reason == "QueueAlreadyExists"
    assert mq.queues(prefix) == [f"{prefix}-a", f"{prefix}-dead"]
    dead.send_many("abc")
    dead.purge()
    assert dead.counts().total == 0
    mq.delete_queue(f"{prefix}-a")
    assert mq.queues(prefix) == [f"{prefix}-dead"]
    with pytest.raises(penstock.UnknownQueue, match="penstock queue create"):
        mq.queue(f"{prefix}-a").send("x")
    with pytest.raises(penstock.InvalidArgument, match="dead_letter"):
        mq.create_queue(f"{prefix}-b", max_receives=3)


def test_the_queue_endpoint_can_be_configured(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    name = new_name()
    with connect(broker.kafka, endpoint=f"http://{broker.http}") as mq:
        mq.create_queue(name).send("x")
    monkeypatch.setenv("PENSTOCK_ENDPOINT", "127.0.0.1:1")
    with (
        connect(broker.kafka) as mq,
        pytest.raises(penstock.NotConnected, match=r"127\.0\.0\.1:1: connection refused"),
    ):
        mq.queue(name).counts()
    with pytest.raises(penstock.InvalidArgument, match="HOST:PORT"):
        connect(broker.kafka, endpoint="http://x/queue/jobs")


def test_brokers_tell_where_their_queues_are(own_broker: Callable[..., BrokerProcess]) -> None:
    elsewhere = own_broker({"advertised.http": "http://127.0.0.1:1"})
    with connect(elsewhere.kafka) as mq, pytest.raises(penstock.NotConnected, match=r"127\.0\.0\.1:1: "):
        mq.queues()


def test_requests_are_signed_with_the_keys_that_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = with_credentials(tmp_path).start()
    name = new_name()
    with connect(broker.kafka) as mq, pytest.raises(penstock.NotAllowed, match="access_key"):
        mq.create_queue(name)
    with connect(broker.kafka, access_key="AKADMIN", secret_key="wrong") as mq, pytest.raises(penstock.NotAllowed):
        mq.create_queue(name)
    with connect(broker.kafka, access_key="AKADMIN", secret_key="admin-secret") as mq:
        mq.create_queue(name).send("ü")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKADMIN")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "admin-secret")
    with connect(broker.kafka) as mq:
        assert mq.queue(name).receive(wait=PATIENCE)[0].body == "ü"
    with pytest.raises(penstock.InvalidArgument, match="belong together"):
        connect(broker.kafka, access_key="AKADMIN")
    broker.finish()


def test_a_name_is_of_the_account_of_the_keys(tmp_path: Path) -> None:
    broker = with_credentials(tmp_path).start()
    name = new_name()
    with (
        connect(broker.kafka, access_key="AKADMIN", secret_key="admin-secret") as mine,
        connect(broker.kafka, access_key="AKOTHER", secret_key="other-secret") as theirs,
    ):
        for mq, body in ((mine, "mine"), (theirs, "theirs")):
            dead = mq.create_queue(f"{name}-dead")
            mq.create_queue(name, dead_letter=dead, max_receives=1).send(body)
            assert mq.queues(name) == [name, f"{name}-dead"]
        for mq, body in ((mine, "mine"), (theirs, "theirs")):
            (job,) = mq.queue(name).receive(wait=PATIENCE)
            job.release()
            assert (job.body, mq.queue(name).receive()) == (body, [])
            (letter,) = mq.queue(f"{name}-dead").receive(wait=PATIENCE)
            assert (letter.body, letter.source) == (body, name)
        theirs.delete_queue(name)
        assert theirs.queues(name) == [f"{name}-dead"]
        assert mine.queues(name) == [name, f"{name}-dead"]
    broker.finish()


def test_a_broker_that_restarts_is_waited_for(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    with connect(broker.kafka) as mq:
        queue = mq.create_queue(new_name())
        queue.send("before")
        broker.kill()
        broker.start()
        queue.send("after")
        assert sorted(job.body for job in queue.receive(max=2, wait=PATIENCE)) == ["after", "before"]


def test_nothing_is_left_of_a_connection_that_used_queues(broker: BrokerProcess) -> None:
    before = threads()
    with connect(broker.kafka) as mq:
        queue = mq.create_queue(new_name())
        queue.send("x")
        assert next(iter(queue.work())).body == "x"
    wait_until(lambda: threads() <= before, "all threads are gone")
    with pytest.raises(penstock.Closed):
        queue.send("late")
    with pytest.raises(penstock.Closed):
        mq.queue("jobs")
