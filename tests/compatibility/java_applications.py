"""Java applications in processes of their own, and the topics that they use."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.waiting import wait_until

from .conftest import Target
from .toolchains import KAFKA, Program, compile_java, java, java_classpath

RESULT_S = 60.0


def compile_applications(artifacts: Sequence[str], names: Sequence[str], folder: Path) -> str:
    """Compiles `java/<name>.java` for each name; returns the classpath with all of them."""
    jars = java_classpath(*artifacts)
    classpath = jars
    for name in names:
        classpath = compile_java(name, jars, folder)
    return classpath


def kafka_artifacts(*names: str) -> list[str]:
    """Returns the Maven coordinates of artifacts of the Kafka project."""
    return [f"org.apache.kafka:{name}:{KAFKA}" for name in names]


class JavaApplications:
    """Starts Java classes, each with a log file of its own, and kills those that are left at the end."""

    def __init__(self, classpath: str, folder: Path) -> None:
        self._classpath = classpath
        self.folder = folder
        self._programs: list[Program] = []

    def start(self, main: str, *arguments: object, options: Sequence[str] = ()) -> Program:
        """Starts a class. `options` are for the JVM, such as system properties."""
        command = java(self._classpath, main, *(str(argument) for argument in arguments))
        command[1:1] = options
        log = self.folder / f"{main.rpartition('.')[2]}-{len(self._programs)}.log"
        program = Program(command, log).start()
        self._programs.append(program)
        return program

    def run(self, main: str, *arguments: object) -> list[str]:
        """Runs a class to its end; returns the lines that it printed."""
        program = self.start(main, *arguments)
        program.wait()
        return program.lines

    def end(self) -> None:
        for program in self._programs:
            program.kill()


def create_topic(target: Target, name: str, partitions: int, config: Mapping[str, str] | None = None) -> str:
    """Creates a topic with as many replicas as there are brokers; returns its name."""
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    topic = NewTopic(name, partitions, target.replicas, config=dict(config or {}))
    admin.create_topics([topic])[name].result(RESULT_S)
    return name


def read_values(bootstrap: str, topic: str, partitions: int, isolation: str = "read_committed") -> list[str]:
    """Returns the values of all records of a topic, up to the end of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    values: list[str] = []
    ended: set[int] = set()

    def at_the_end() -> bool:
        for message in consumer.consume(1000, 0.5):
            error = message.error()
            if error is None:
                values.append((message.value() or b"").decode())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
        return len(ended) == partitions

    try:
        wait_until(at_the_end, f"the end of every partition of {topic}", seen=ended)
    finally:
        consumer.close()
    return values


def words_after(program: Program, word: str) -> list[list[str]]:
    """Returns the other words of every line that begins with a word and is complete."""
    text = program.log.read_text(errors="replace")
    complete = text[: text.rfind("\n") + 1].splitlines()
    return [line.split()[1:] for line in complete if line.startswith(f"{word} ")]
