"""A Kafka Streams application whose instances are killed and started again: every word is counted once."""

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.waiting import wait_until

from .conftest import Target
from .toolchains import KAFKA, Program, compile_java, java, java_classpath, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

WORDS = [f"word-{number}" for number in range(23)]
PARTITIONS = 4
ROUNDS = 4
SEED = random.randrange(2**32)
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    artifacts = ("kafka-streams", "kafka-tools", "kafka_2.13")
    jars = java_classpath(*(f"org.apache.kafka:{name}:{KAFKA}" for name in artifacts))
    return compile_java("CountWords", jars, tmp_path_factory.mktemp("classes"))


class Application:
    """Its instances, what they are fed with, and what they have counted."""

    def __init__(self, target: Target, classpath: str, folder: Path, protocol: str) -> None:
        self._target, self._classpath, self._folder = target, classpath, folder
        self._protocol = protocol
        self.name = f"count-{protocol}-{next(_numbers)}"
        self.instances: list[Program] = []
        self.sent: Counter[str] = Counter()
        self._rng = random.Random(SEED)
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        topics = [NewTopic(f"{self.name}-{topic}", PARTITIONS) for topic in ("words", "totals")]
        for future in admin.create_topics(topics).values():
            future.result(60)

    def start(self, number: int) -> Program:
        """An instance with its own state, which it finds again if it has run before."""
        command = java(
            self._classpath,
            "CountWords",
            *(self._target.bootstrap, self.name, self._protocol, "2", str(self._folder / f"state-{number}")),
        )
        instance = Program(command, self._folder / f"instance-{number}.log").start()
        self.instances.append(instance)
        return instance

    def send(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self._target.bootstrap})
        for _ in range(count):
            word = self._rng.choice(WORDS)
            self.sent[word] += 1
            producer.produce(f"{self.name}-words", key=str(self._rng.randrange(99)), value=word)
        assert producer.flush(60) == 0

    def wait_counted(self) -> None:
        """Until the totals are what was sent; no total ever counts a word twice, or goes back."""
        seen: Counter[str] = Counter()
        consumer = Consumer(
            {
                "bootstrap.servers": self._target.bootstrap,
                "group.id": "unused",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(f"{self.name}-totals", number, 0) for number in range(PARTITIONS)])

        def all_counted() -> bool:
            for message in consumer.consume(1000, 0.5):
                assert message.error() is None, message.error()
                word, total = (message.key() or b"").decode(), int(message.value() or b"0")
                assert total > seen[word], f"{word} was {seen[word]} and is {total}"
                seen[word] = total
                assert total <= self.sent[word], f"{word} was sent {self.sent[word]} times and counted {total} times"
            return seen == self.sent

        try:
            wait_until(all_counted, "everything is counted", 240, seen=self.sent - seen)
        finally:
            consumer.close()

    def end(self) -> None:
        for instance in self.instances:
            instance.kill()


@pytest.fixture
def application(
    target: Target, classpath: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Application]:
    application = Application(target, classpath, tmp_path, request.param)
    yield application
    application.end()


@pytest.mark.parametrize("application", ["streams", "classic"], indirect=True)
def test_every_word_is_counted_once_though_instances_are_killed(
    application: Application, target: Target, classpath: str
) -> None:
    print(f"seed {SEED}")  # noqa: T201
    if application.name.startswith("count-streams"):
        alter = ("--alter", "--entity-type", "groups", "--entity-name", application.name)
        config = ("--bootstrap-server", target.bootstrap, *alter, "--add-config", "streams.num.standby.replicas=1")
        run(java(classpath, "kafka.admin.ConfigCommand", *config), Path.cwd())
    running = {number: application.start(number) for number in (1, 2)}
    running[1].wait_line("standby=")
    running[2].wait_line("standby=")
    for turn in range(ROUNDS):
        application.send(500)
        number = 1 + turn % 2
        running[number].kill()
        application.send(500)
        application.wait_counted()  # the other instance has taken over
        running[number] = application.start(number)
        application.send(200)
        application.wait_counted()
    failed = [line for instance in application.instances for line in instance.lines if line.startswith("FAILED")]
    assert not failed, failed[0]
    for instance in running.values():
        instance.stop()
    application.wait_counted()


@pytest.mark.parametrize("application", ["streams"], indirect=True)
def test_kafka_s_own_tool_shows_the_group(application: Application, target: Target, classpath: str) -> None:
    instance = application.start(1)
    application.send(10)
    application.wait_counted()
    tool = "org.apache.kafka.tools.streams.StreamsGroupCommand"

    def said(*arguments: str) -> str:
        return run(java(classpath, tool, "--bootstrap-server", target.bootstrap, *arguments), Path.cwd())

    assert application.name in said("--list", "--state", "Stable")
    described = said("--describe", "--group", application.name, "--members", "--verbose")
    assert "ACTIVE: 0:[" in described
    assert f"{application.name}-words" in said("--describe", "--group", application.name)
    instance.stop()
    assert "successful" in said("--delete", "--group", application.name)
    assert application.name not in said("--list")
