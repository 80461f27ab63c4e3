"""A pool of real clients, confluent-kafka, each on a thread of its own in one process: the same for every broker.

python -m bench.client_pool commit|transact PORT TOPIC PARTITIONS CLIENTS SIZE RAMP_S WINDOW_S BROKER_PID
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from bench.blocking_client import BlockingClient, WrongAnswer
from bench.broker import KafkaBroker
from bench.cache import BENCH
from bench.clients import VALUE_BYTES
from bench.coordinators import delete_groups
from bench.frames import payload
from bench.load import LoadFailed, Sample
from bench.measure import cpu_s, machine_cpu_s, settle
from bench.runs import Window

PATIENCE_S: Final = 30.0
POLL_S: Final = 0.1
FETCH_MAX: Final = 10_000


def run(
    broker: KafkaBroker, action: str, topic: str, partitions: int, clients: int, size: int, window: Window
) -> Sample:
    """Run an action in a fresh process. `size`: partitions in a commit, messages in a transaction."""
    settle()
    words = [action, broker.port, topic, partitions, clients, size, window.ramp_s, window.seconds, broker.pid]
    done = subprocess.run(
        [sys.executable, "-m", "bench.client_pool", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=window.ramp_s + window.seconds + 6 * PATIENCE_S,
        cwd=BENCH.parent,
        check=False,
    )
    if done.returncode:
        raise LoadFailed(f"confluent-kafka failed to {action} against {broker.name}: {done.stderr[-500:]}")
    if action == "commit":
        with BlockingClient(broker.port) as connection:
            delete_groups(connection, [group_name(topic, number) for number in range(clients)])
    return Sample(**json.loads(done.stdout))


def group_name(topic: str, number: int) -> str:
    return f"pool-{topic}-{number}"


# -- in the process of the clients


class ClientPool:
    """Does something over and over on many threads, and looks at the clock from outside."""

    def __init__(self, clients: int) -> None:
        self._done = [0] * clients
        self._ready = threading.Barrier(clients + 1)
        self._is_over = threading.Event()

    def measure(self, live: Callable[["Client"], None], ramp_s: float, window_s: float, broker_pid: int) -> Sample:
        """Let all live. `live` calls `begin` when it is ready, then `goes_on` after everything it has done."""
        with ThreadPoolExecutor(len(self._done)) as pool:
            lives = [pool.submit(live, Client(self, number)) for number in range(len(self._done))]
            for life in lives:
                life.add_done_callback(self._on_end)
            try:
                self._ready.wait(PATIENCE_S)
                time.sleep(ramp_s)
                before = self._look(broker_pid)
                time.sleep(window_s)
                after = self._look(broker_pid)
            finally:
                self._is_over.set()
                _raise_first([error for life in lives if (error := life.exception(PATIENCE_S)) is not None])
        done, seconds, client_s, broker_s, machine_s = (b - a for a, b in zip(before, after, strict=True))
        if not done:
            raise WrongAnswer(f"nothing was done in {seconds:g} s")
        return Sample(
            answered=int(done),
            answered_total=sum(self._done),
            seconds=seconds,
            client_cpu_s=client_s,
            broker_cpu_s=broker_s,
            machine_cpu_s=machine_s,
            bytes_each=0,
        )

    def _on_end(self, life: Future[None]) -> None:
        if life.exception() is not None:
            self._ready.abort()

    def _look(self, broker_pid: int) -> tuple[float, ...]:
        return sum(self._done), time.perf_counter(), time.process_time(), cpu_s(broker_pid), machine_cpu_s()

    def begin(self) -> None:
        self._ready.wait(PATIENCE_S)

    def goes_on(self, number: int) -> bool:
        self._done[number] += 1
        return not self._is_over.is_set()


def _raise_first(errors: Sequence[BaseException]) -> None:
    """What went wrong. A barrier that broke says less than the client that broke it."""
    for error in sorted(errors, key=lambda each: isinstance(each, threading.BrokenBarrierError)):
        raise error


class Client:
    """One of the pool, as what it does sees it."""

    def __init__(self, pool: ClientPool, number: int) -> None:
        self._pool = pool
        self.number: Final = number

    def begin(self) -> None:
        """Wait for all others."""
        self._pool.begin()

    def goes_on(self) -> bool:
        """Once more was done; shall it be done again?"""
        return self._pool.goes_on(self.number)


class Setting:
    """Where the clients are, and how much they do at a time."""

    def __init__(self, port: int, topic: str, partitions: int, size: int) -> None:
        self.server: Final = {"bootstrap.servers": f"127.0.0.1:{port}"}
        self.topic: Final = topic
        self.partitions: Final = partitions
        self.size: Final = size


def commit(client: Client, where: Setting) -> None:
    """A consumer, alone in its group, that writes down where it is and waits for the answer."""
    from confluent_kafka import Consumer, TopicPartition

    group = group_name(where.topic, client.number)
    consumer = Consumer({**where.server, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([where.topic])
    give_up_s = time.monotonic() + PATIENCE_S
    while len(consumer.assignment()) < where.partitions and time.monotonic() < give_up_s:
        consumer.poll(POLL_S)
    consumer.pause(consumer.assignment())
    client.begin()
    offset = 0
    going = True
    while going:
        offset += 1
        places = [TopicPartition(where.topic, number, offset) for number in range(where.size)]
        consumer.commit(offsets=places, asynchronous=False)
        going = client.goes_on()
    found = consumer.committed([TopicPartition(where.topic, number) for number in range(where.size)], PATIENCE_S)
    consumer.close()
    if [place.offset for place in found] != [offset] * where.size:
        raise WrongAnswer(f"{offset} was committed, {found} is what OffsetFetch returns")


def transact(client: Client, where: Setting) -> None:
    """A producer that writes some messages and commits them, and then the next ones."""
    from confluent_kafka import Producer

    producer = Producer({**where.server, "transactional.id": f"{where.topic}-{client.number}"})
    producer.init_transactions(PATIENCE_S)
    value = payload(VALUE_BYTES)
    client.begin()
    going = True
    while going:
        producer.begin_transaction()
        for _ in range(where.size):
            producer.produce(where.topic, value)
        producer.commit_transaction(PATIENCE_S)
        going = client.goes_on()


def count_committed(where: Setting, expected: int) -> int:
    """How many messages a reader of committed ones finds in the topic. The last markers may still be on their way."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {"group.id": "pool", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({**where.server, **settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(where.topic, number, 0) for number in range(where.partitions)])
    found, open_partitions = 0, set(range(where.partitions))
    give_up_s = time.monotonic() + PATIENCE_S
    while (open_partitions or found < expected) and time.monotonic() < give_up_s:
        for message in consumer.consume(FETCH_MAX, POLL_S):
            error = message.error()
            if error is None:
                found += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise WrongAnswer(f"the topic cannot be read: {error}")
    consumer.close()
    return found


ACTIONS: Final[dict[str, Callable[[Client, Setting], None]]] = {"commit": commit, "transact": transact}


def main() -> None:
    action, *words, ramp_s, window_s, broker_pid = sys.argv[1:]
    port, topic, partitions, clients, size = words
    where = Setting(int(port), topic, int(partitions), int(size))
    pool = ClientPool(int(clients))
    sample = pool.measure(
        lambda client: ACTIONS[action](client, where), float(ramp_s), float(window_s), int(broker_pid)
    )
    if action == "transact":
        expected = sample.answered_total * where.size
        found = count_committed(where, expected)
        if found != expected:
            raise WrongAnswer(f"{expected} messages were committed, {found} can be read")
    seen = {name: getattr(sample, name) for name in Sample.__slots__}
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
