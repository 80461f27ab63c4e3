"""Workers of queues through the Python API: which messages they hold, delete, release and lose."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock import Connection, Job, OutgoingJob, Queue
from tests.brokers import BrokerProcess

from .api_lab import Program, connect
from .queue_lab import new_name
from .waiting import PATIENCE_S, wait_until

PATIENCE = "20s"
LONG = "10m"


@pytest.fixture(scope="module")
def mq(broker: BrokerProcess) -> Iterator[Connection]:
    with connect(broker.kafka) as connection:
        yield connection


@pytest.fixture
def queue(mq: Connection) -> Queue:
    return mq.create_queue(new_name())


def test_asking_for_the_next_message_finishes_the_last(queue: Queue) -> None:
    queue.send_many(range(1, 4))
    found = []
    for job in queue.work(limit=3):
        found.append(job.json())
        assert queue.counts().in_flight == 1
    assert sorted(found) == [1, 2, 3]
    assert queue.counts().total == 0


def test_a_message_is_kept_for_as_long_as_it_takes(queue: Queue) -> None:
    queue.send("slow")
    for job in queue.work(visibility="1s", limit=1):
        assert queue.receive(wait="3s") == []  # three times as long as it was received for
        assert job.receive_count == 1
    assert queue.counts().total == 0


def test_a_loop_that_fails_gives_its_message_back_after_a_while(queue: Queue) -> None:
    def work() -> None:
        for _ in queue.work(visibility=LONG, backoff="1s"):
            raise ZeroDivisionError

    queue.send("poison")
    with pytest.raises(ZeroDivisionError):
        work()
    (again,) = queue.receive(wait=PATIENCE)
    assert again.receive_count == 2


def test_a_loop_that_is_left_gives_its_message_back(queue: Queue) -> None:
    queue.send_many(["finished", "left"])
    for job in queue.work(visibility=LONG):
        if job.body == "left":
            break
    (again,) = queue.receive(max=10, wait=PATIENCE)
    assert (again.body, again.receive_count) == ("left", 2)
    with queue.work(visibility=LONG) as jobs:
        again.release()
        assert next(jobs).receive_count == 3
    assert queue.receive(wait=PATIENCE)[0].receive_count == 4  # at once: nothing has failed


def test_acknowledgements_within_a_loop_are_applied(queue: Queue) -> None:
    queue.send_many(["later", "done"])
    for job in queue.work(visibility=LONG, limit=2):
        if job.body == "later":
            job.release("10m")
        else:
            job.delete()
    counts = queue.counts()
    assert (counts.available, counts.total) == (0, 1)


def test_a_thrown_exception_is_about_the_current_message(queue: Queue) -> None:
    queue.send_many(["first", "second"])
    with queue.work(visibility=LONG, backoff="10m", backoff_max="10m") as jobs:
        first = next(jobs)
        second = jobs.throw(ValueError("not today"))
        assert {first.body, second.body} == {"first", "second"}
        second.delete()
    assert queue.counts().total == 1


def test_a_handler_gets_each_message_once_and_failures_again(
    mq: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    dead = mq.create_queue(new_name())
    queue = mq.create_queue(new_name(), dead_letter=dead, max_receives=2)
    queue.send_many(range(30))
    handled: list[tuple[int, int]] = []

    def handle(job: Job) -> None:
        handled.append((job.json(), job.receive_count))
        if job.json() == 13 or (job.json() == 7 and job.receive_count == 1):
            raise ValueError(job.json())

    with caplog.at_level(logging.WARNING, "penstock.api"):
        done = queue.work(handle, concurrency=4, visibility=LONG, backoff=1, idle_timeout_s=3)
    assert done == 29
    assert sorted(handled) == sorted([*((n, 1) for n in range(30)), (7, 2), (13, 2)])
    assert "job_failed" in caplog.text
    (letter,) = dead.receive(wait=PATIENCE)
    assert (letter.json(), letter.source, letter.receive_count) == (13, queue.name, 3)
    assert queue.counts().total == 0


def test_messages_of_one_group_are_never_handled_side_by_side(mq: Connection) -> None:
    queue = mq.create_queue(f"{new_name()}.fifo", content_based_deduplication=True)
    queue.send_many([OutgoingJob({"n": n}, group=f"g{n % 3}") for n in range(24)])
    lock = threading.Lock()
    busy: set[str | None] = set()
    handled: list[tuple[str | None, int]] = []

    def handle(job: Job) -> None:
        with lock:
            assert job.group not in busy
            busy.add(job.group)
            handled.append((job.group, job.json()["n"]))
        with lock:
            busy.discard(job.group)

    assert queue.work(handle, concurrency=3, limit=24) == 24
    assert [n for group, n in handled if group == "g0"] == list(range(0, 24, 3))
    assert sorted(n for _, n in handled) == list(range(24))


def test_several_messages_may_be_in_flight_and_each_is_finished_by_itself(queue: Queue) -> None:
    queue.send_many(range(5))
    with queue.work(visibility=LONG, concurrency=3) as jobs:
        first, second, third = (next(jobs) for _ in range(3))
        first.delete()
        with second:
            pass
        assert {next(jobs).receive_count, next(jobs).receive_count} == {1}
        third.release("10m")
    counts = queue.counts()
    assert (counts.available, counts.total) == (2, 3)


def test_closing_ends_a_loop_that_waits(queue: Queue) -> None:
    jobs = queue.work()
    found: list[Job] = []
    waiting = threading.Thread(target=lambda: found.extend(jobs))
    waiting.start()
    queue.send("x")
    wait_until(lambda: found, "the loop has its message")
    jobs.close()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()


def test_stopping_lets_handlers_end_what_they_have_begun(broker: BrokerProcess) -> None:
    with connect(broker.kafka) as mq:
        queue = mq.create_queue(new_name())
        queue.send_many(range(10))
        begun, go_on = threading.Barrier(3), threading.Event()

        def handle(job: Job) -> None:
            if not go_on.is_set():
                begun.wait(PATIENCE_S)
                go_on.wait(PATIENCE_S)

        done: list[int] = []
        jobs = queue.work(visibility=LONG, concurrency=2)
        running = threading.Thread(target=lambda: done.append(jobs.run(handle)))
        running.start()
        begun.wait(PATIENCE_S)
        closing = threading.Thread(target=mq.close)  # which waits for them
        jobs.stop()
        closing.start()
        go_on.set()
        running.join(PATIENCE_S)
        closing.join(PATIENCE_S)
        assert done == [2]
    with connect(broker.kafka) as mq:
        counts = mq.queue(queue.name).counts()
        assert (counts.available, counts.in_flight) == (8, 0)


def test_a_worker_that_is_killed_leaves_its_message_to_others(
    broker: BrokerProcess, queue: Queue, tmp_path: Path
) -> None:
    code = """
        mq = connect(sys.argv[1])
        for job in mq.queue(sys.argv[2]).work(visibility="2s"):
            say(job.body)
            sys.stdin.readline()
    """
    worker = Program(code, broker.kafka, queue.name, folder=tmp_path)
    queue.send("precious")
    assert worker.line() == "precious"
    worker.signal(signal.SIGKILL)
    worker.end()
    (job,) = queue.receive(wait=PATIENCE)
    assert (job.body, job.receive_count) == ("precious", 2)


def test_ctrl_c_releases_messages_in_flight(broker: BrokerProcess, queue: Queue, tmp_path: Path) -> None:
    code = """
        with connect(sys.argv[1]) as mq:
            try:
                mq.queue(sys.argv[2]).work(lambda job: (say(job.body), sys.stdin.readline()), visibility="10m")
            except KeyboardInterrupt:
                say("interrupted")
    """
    worker = Program(code, broker.kafka, queue.name, folder=tmp_path)
    queue.send("x")
    assert worker.line() == "x"
    worker.signal(signal.SIGINT)
    assert worker.end() == (0, ["interrupted"])
    assert queue.receive(wait=PATIENCE)[0].receive_count == 2


def test_a_worker_outlives_its_broker(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    with connect(broker.kafka) as mq:
        queue = mq.create_queue(new_name())
        queue.send_many(range(6))
        handled = []
        for job in queue.work(visibility="20s", limit=6):
            handled.append(job.json())
            if len(handled) == 3:
                broker.kill()
                broker.start()
        assert sorted(handled) == list(range(6))
        assert queue.counts().total == 0


def test_a_message_whose_receipt_has_expired_is_not_deleted(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    queue.send("x")
    with caplog.at_level(logging.WARNING, "penstock.api"):
        for job in queue.work(visibility="1s", limit=1):
            queue.purge()
            with pytest.raises(penstock.JobLost):
                job.extend("1m")
    assert queue.counts().total == 0
