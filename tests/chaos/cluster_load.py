"""The load of a chaos run: producers and consumers that record their history."""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as Polled

from .checker import Message, Op, Outcome

PATIENCE_S: Final = 240.0
GROUP: Final = "group"
FAST: Final[Mapping[str, Any]] = {
    "log_level": 0,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 5000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "socket.timeout.ms": 6000,
    "socket.connection.setup.timeout.ms": 2000,
}
"""A link that is cut is noticed in seconds, not in minutes."""


class History:
    """Everything that happened, in the order in which it was noted; a line of JSON each in its file too."""

    def __init__(self, file: Path, volatile: Collection[str] = ()) -> None:
        """`volatile`: topics whose messages need not survive."""
        self.ops: list[Op] = []
        self.volatile = set(volatile)
        self._file = file.open("w")
        self._lock = threading.Lock()
        self.due: set[str] = set()
        """The values that were acknowledged, and must be polled by everyone."""
        self.seen: dict[str, set[str]] = defaultdict(set)
        """The values that each audience has polled."""
        self.acks: dict[str, int] = defaultdict(int)
        """Messages acknowledged, by partition."""

    def note(self, op: Op) -> None:
        with self._lock:
            if self._file.closed:
                return  # the test is over, and has failed: its workers were not stopped
            self.ops.append(op)
            self._file.write(op.dump() + "\n")
            if op.audience:
                self.seen[op.audience].update(message.value for message in op.polled)
            if op.outcome is Outcome.OK:
                for message in op.sent:
                    self.acks[message.key] += 1
                    if message.key.rpartition("-")[0] not in self.volatile:
                        self.due.add(message.value)

    def missing(self, audiences: Collection[str]) -> dict[str, int]:
        """How many acknowledged values each audience has still to poll."""
        with self._lock:
            return {who: left for who in audiences if (left := len(self.due - self.seen[who]))}

    def close(self) -> None:
        with self._lock:
            self._file.close()


def key_of(topic: str | None, partition: int | None) -> str:
    return f"{topic}-{partition}"


def kafka_error(error: KafkaException | SystemError) -> KafkaException:
    """Returns the error of the producer. When it is fatal, confluent-kafka raises it in `poll` or `flush`, but calls
    the remaining delivery callbacks first: these fail with a SystemError, because an exception is already set."""
    if isinstance(error, KafkaException):
        return error
    if not isinstance(error.__cause__, KafkaException):
        raise error
    return error.__cause__


class Worker(threading.Thread):
    """One producer or consumer. What it cannot cope with is kept for the test to see."""

    def __init__(self, name: str, history: History) -> None:
        super().__init__(name=name, daemon=True)
        self._history = history
        self._stopped = threading.Event()
        self.trouble: list[str] = []

    def run(self) -> None:
        try:
            self._work()
        except (KafkaException, AssertionError, RuntimeError) as error:
            self.trouble.append(f"{self.name} ended: {error!r}")

    def _work(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self._stopped.set()


class Writer(Worker):
    """An idempotent producer that wants all replicas to have its messages."""

    def __init__(
        self, name: str, history: History, bootstrap: str, places: Sequence[tuple[str, int]], rng: random.Random
    ) -> None:
        super().__init__(name, history)
        self._places = places
        self._rng = rng
        self._sent = 0
        self.fatal = 0
        self._codec = rng.choice(["none", "lz4", "zstd", "gzip"])
        self._servers = bootstrap
        self._producer = self._make()

    def _make(self) -> Producer:
        settings = {
            **FAST,
            "bootstrap.servers": self._servers,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "message.timeout.ms": int(PATIENCE_S * 1000),
            "request.timeout.ms": 6000,
            "retry.backoff.ms": 50,
            "retry.backoff.max.ms": 500,
            "compression.type": self._codec,
        }
        return Producer(settings)

    def _on_delivery(self, error: KafkaError | None, message: Polled) -> None:
        value = (message.value() or b"").partition(b" ")[0].decode()
        known = error is None
        sent = Message(
            key=key_of(message.topic(), message.partition()), value=value, offset=message.offset() if known else None
        )
        self._history.note(Op(process=self.name, outcome=Outcome.OK if known else Outcome.INFO, sent=(sent,)))

    def _work(self) -> None:
        while not self._stopped.wait(self._rng.uniform(0, 0.02)):
            topic, partition = self._rng.choice(self._places)
            filler = self._rng.randbytes(self._rng.choice((0, 20, 400))).hex()
            try:
                self._producer.produce(
                    topic,
                    value=f"{self.name}/{self._sent} {filler}",
                    partition=partition,
                    on_delivery=self._on_delivery,
                )
            except BufferError:
                self._producer.poll(0.1)
                continue
            except KafkaException as error:
                self._begin_again(error)
                continue
            self._sent += 1
            try:
                self._producer.poll(0)
            except (KafkaException, SystemError) as error:
                self._begin_again(kafka_error(error))
        deadline_s = time.monotonic() + PATIENCE_S
        while left := self._producer.flush(5):
            assert time.monotonic() < deadline_s, f"{left} messages were never answered"

    def _begin_again(self, error: KafkaException) -> None:
        """A fatal error: what is not delivered yet may be there or not."""
        assert error.args[0].fatal(), f"it cannot produce: {error}"
        self.fatal += 1
        self.trouble.append(f"{self.name}: fatal: {error}")
        self._producer.purge()
        self._producer.flush(5)
        self._producer = self._make()


class TransactionWriter(Worker):
    """A transactional producer: some transactions are committed, some aborted, some have an unknown outcome."""

    def __init__(
        self, name: str, history: History, bootstrap: str, places: Sequence[tuple[str, int]], rng: random.Random
    ) -> None:
        super().__init__(name, history)
        self._servers = bootstrap
        self._places = places
        self._rng = rng
        self._sent = 0
        self._step = "begin"
        self.outcomes: dict[str, int] = defaultdict(int)
        self._producer: Producer | None = None

    def _begun(self) -> Producer:
        """A producer that has fenced the one before it."""
        if self._producer is None:
            settings = {
                **FAST,
                "bootstrap.servers": self._servers,
                "transactional.id": self.name,
                "transaction.timeout.ms": 20_000,
                "linger.ms": 2,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 500,
            }
            producer = Producer(settings)
            self._patiently(producer.init_transactions)
            self._producer = producer
        return self._producer

    def _patiently(self, call: Callable[[float], None]) -> None:
        """Call it again as long as that is what the error asks for."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return call(10)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline_s:
                    raise

    def _work(self) -> None:
        while not self._stopped.wait(self._rng.uniform(0, 0.3)):
            messages: dict[str, Message] = {}
            try:
                outcome = self._transact(messages)
            except (KafkaException, SystemError) as error:
                outcome = self._give_up(kafka_error(error))
            self.outcomes[outcome] += 1
            self._history.note(Op(process=self.name, outcome=outcome, sent=tuple(messages.values())))

    def _transact(self, messages: dict[str, Message]) -> Outcome:
        self._step = "begin"
        producer = self._begun()

        def on_delivery(error: KafkaError | None, message: Polled) -> None:
            value = (message.value() or b"").decode()
            if error is None:
                key = key_of(message.topic(), message.partition())
                messages[value] = Message(key=key, value=value, offset=message.offset())

        producer.begin_transaction()
        for _ in range(self._rng.randint(1, 5)):
            topic, partition = self._rng.choice(self._places)
            value = f"{self.name}/{self._sent}"
            self._sent += 1
            messages[value] = Message(key=key_of(topic, partition), value=value)
            producer.produce(topic, value=value, partition=partition, on_delivery=on_delivery)
        if self._rng.random() < 0.25:
            producer.flush(self._rng.choice((0.0, 1.0)))
            self._step = "abort"
            self._patiently(producer.abort_transaction)
            return Outcome.FAIL
        self._step = "commit"
        self._patiently(producer.commit_transaction)
        producer.poll(0)
        return Outcome.OK

    def _give_up(self, error: KafkaException) -> Outcome:
        """Abort, if the error leaves that to be done. Else only a new producer finds out how it was."""
        producer, cause = self._producer, error.args[0]
        if producer is not None and cause.txn_requires_abort():
            try:
                self._patiently(producer.abort_transaction)
            except KafkaException as worse:
                cause = worse.args[0]
            else:
                return Outcome.FAIL
        self._producer = None
        self.trouble.append(f"{time.strftime('%H:%M:%S')} {self.name} at {self._step}: {cause}")
        return Outcome.INFO


class Reader(Worker):
    """Polls everything from the beginning on, partition by partition as it was assigned to itself."""

    def __init__(
        self,
        name: str,
        history: History,
        bootstrap: str,
        places: Sequence[tuple[str, int]],
        *,
        is_volatile: bool = False,
        to_end: bool = False,
    ) -> None:
        """`is_volatile`: messages may be gone before it has polled them. `to_end`: it ends when it is at the end."""
        super().__init__(name, history)
        self._audience = "" if is_volatile else name
        settings = {
            **FAST,
            "bootstrap.servers": bootstrap,
            "group.id": f"unused-{name}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest" if is_volatile else "error",
            "enable.partition.eof": to_end,
            "fetch.wait.max.ms": 250,
        }
        self._consumer = Consumer(settings)
        self._left = {key_of(*place) for place in places}
        self._to_end = to_end
        self._places = [TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in places]

    def _work(self) -> None:
        self._consumer.assign(self._places)
        while not self._stopped.is_set() and (self._left or not self._to_end):
            polled = [each for message in self._consumer.consume(500, 0.25) if (each := self._take(message))]
            if polled:
                self._history.note(Op(process=self.name, audience=self._audience, polled=tuple(polled)))
        self._consumer.close()

    def _take(self, message: Polled) -> Message | None:
        error, key = message.error(), key_of(message.topic(), message.partition())
        if error is None:
            value = (message.value() or b"").partition(b" ")[0].decode()
            return Message(key=key, value=value, offset=message.offset())
        if error.code() == KafkaError._PARTITION_EOF:
            self._left.discard(key)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self.trouble.append(f"{self.name} lost its place in {key}: {error}")
        return None


class Member(Worker):
    """A member of a group: it polls, and commits what it has polled."""

    def __init__(self, name: str, history: History, bootstrap: str, topics: Sequence[str], protocol: str) -> None:
        super().__init__(name, history)
        self._topics = list(topics)
        self._taken: list[Message] = []
        self.last_refusal = ""
        settings = {
            **FAST,
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
        if protocol == "classic":
            settings["session.timeout.ms"] = 10_000
        self._consumer = Consumer(settings)

    def _work(self) -> None:
        self._consumer.subscribe(self._topics, on_assign=self._moved, on_revoke=self._moved, on_lost=self._moved)
        while not self._stopped.is_set():
            message = self._consumer.poll(0.25)
            while message is not None:
                if message.error() is None:
                    value = (message.value() or b"").partition(b" ")[0].decode()
                    key = key_of(message.topic(), message.partition())
                    self._taken.append(Message(key=key, value=value, offset=message.offset()))
                message = self._consumer.poll(0) if len(self._taken) < 200 else None
            if self._taken:
                self._note()
                self._commit()
        self._consumer.close()

    def _moved(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note()
        self._history.note(Op(process=self.name, assigned=True))

    def _note(self) -> None:
        taken, self._taken = self._taken, []
        if taken:
            self._history.note(Op(process=self.name, audience=GROUP, polled=tuple(taken)))

    def _commit(self) -> None:
        """Commits; a failed commit is made up for by the next one, or by the next owner of the partition."""
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            self.last_refusal = str(error)
