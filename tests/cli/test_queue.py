"""`penstock queue`, as its users run it."""

import asyncio
import itertools
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.queue_attributes import NewQueue
from penstock.client.sqs import SqsClient, find_endpoints
from tests.clients.waiting import wait_until

from .cli_runner import Cli, Direct, ServeProcess, table

_numbers = itertools.count()
KEYS = """
keys:
  - {access_key: AKADMIN, secret: admin-secret}
  - {access_key: AKOTHER, secret: other-secret, owner: "111122223333"}
"""


class Queues:
    """Queues without the command, for what a test needs beforehand: starting a process takes its time."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def ask(self, action: str, **params: Any) -> dict[str, Any]:
        async def work() -> dict[str, Any]:
            sqs = SqsClient(lambda: find_endpoints(self._bootstrap))
            try:
                return await sqs.call(action, params, wait_s=params.get("WaitTimeSeconds", 0))
            finally:
                sqs.close()

        return asyncio.run(work())

    def create(self, name: str, **options: Any) -> str:
        self.ask("CreateQueue", QueueName=name, Attributes=NewQueue(**options).attributes())
        return name

    def send(self, name: str, *bodies: str) -> None:
        for begin in range(0, len(bodies), 10):
            entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies[begin : begin + 10])]
            assert "Failed" not in self.ask("SendMessageBatch", QueueUrl=name, Entries=entries)

    def receive(self, name: str, **params: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("ReceiveMessage", QueueUrl=name, MaxNumberOfMessages=10, **params).get(
            "Messages", []
        )
        return found

    def available(self, name: str) -> int:
        count = "ApproximateNumberOfMessages"
        return int(self.ask("GetQueueAttributes", QueueUrl=name, AttributeNames=[count])["Attributes"][count])


@pytest.fixture(scope="session")
def queues(broker: ServeProcess) -> Queues:
    return Queues(broker.bootstrap)


@pytest.fixture
def name() -> str:
    """A name that no queue has yet."""
    return f"jobs-{next(_numbers)}"


@pytest.fixture
def queue(queues: Queues, name: str) -> str:
    return queues.create(name)


def test_a_queue_is_made_filled_worked_off_and_deleted(cli: Cli, name: str) -> None:
    assert cli.ok("queue", "create", name).startswith(f"created queue {name}: http://127.0.0.1:")
    assert (
        cli.ok("queue", "send", name, '{"id": 1}', "--attribute", "tenant=eu") == f"sent 1 message to queue {name}\n"
    )
    (received,) = cli.json("queue", "receive", name, "--wait", "10s", "--visibility", "5m")
    assert (received["body"], received["attributes"], received["receives"]) == ('{"id": 1}', {"tenant": "eu"}, 1)
    done = cli.ok("queue", "delete-message", name, received["receipt"])
    assert done == f"deleted 1 message of queue {name}\n"
    (described,) = cli.json("queue", "describe", name)
    assert (described["available"], described["in_flight"], described["delayed"]) == (0, 0, 0)
    assert cli.ok("queue", "delete", name, "--yes") == f"deleted queue {name}\n"
    assert "penstock queue create" in cli.refused("queue", "describe", name, code=1)


def test_lines_are_messages_and_are_shown_in_a_table(cli: Cli, queue: str) -> None:
    lines = "\n".join(f"line {number}" for number in range(25))
    sent = cli.json("queue", "send", queue, stdin=lines.encode())
    assert len({each["message_id"] for each in sent}) == 25
    header, *rows = table(cli.ok("queue", "receive", queue, "--max", "12", "--delete"))
    # With --delete they are shown as they are deleted, ten at a time.
    assert header == ["MESSAGE ID", "SENT", "RECEIVES", "BODY"]
    bodies = [row[-1] for row in rows if row != header]
    assert len(bodies) == 12
    listed = {row[0]: row[1:] for row in table(cli.ok("queue", "list", "--prefix", queue))}
    assert listed[queue] == ["standard", "13", "0", "0"]
    assert cli.ok("queue", "purge", queue, "--yes") == f"purged queue {queue}: about 13 messages\n"


def test_large_messages_are_sent_one_by_one_and_too_large_ones_are_refused(
    cli: Cli, queue: str, tmp_path: Path
) -> None:
    half, large = tmp_path / "half", tmp_path / "large"
    half.write_bytes(b"x" * 524_270)
    large.write_bytes(b"x" * 1_048_577)
    arguments = ("queue", "send", queue, "--attribute", "tenant=eu")
    assert cli.ok(*arguments, "--file", str(half), "--file", str(half)).startswith("sent 2 messages")
    said = cli.refused(*arguments, "--file", str(large), code=1)
    assert "1048576" in said.replace(",", ""), said
    assert "EmptyBatchRequest" not in said


def test_describe_shows_the_attributes(cli: Cli, queues: Queues, name: str) -> None:
    queues.create(f"{name}-dead", retention_s=30 * 86_400)
    options = ("--visibility", "2m", "--delay", "90s", "--wait", "5s", "--retention", "1h", "--tag", "team=eu")
    cli.ok("queue", "create", name, *options, "--dead-letter", f"{name}-dead", "--max-receives", "3")
    shown = dict(row for row in table(cli.ok("queue", "describe", name)) if len(row) == 2)
    assert shown["visibility timeout"] == "2m"
    assert (shown["delay"], shown["wait"], shown["retention"]) == ("1m 30s", "5s", "1h")
    assert shown["dead letters go to"] == f"{name}-dead after 3 receives"
    assert shown["tag team"] == "eu"
    text = cli.ok("queue", "describe", f"{name}-dead")
    assert f"dead letters come from  {name}" in text
    assert "retention               30d" in text
    assert "different value" in cli.refused("queue", "create", name, "--visibility", "3m", code=1)


def test_dead_letters_are_moved_back(cli: Cli, queues: Queues, name: str) -> None:
    dead = queues.create(f"{name}-dead")
    queues.create(name, dead_letter=dead, max_receives=1)
    queues.send(name, "poison", "more poison")
    assert len(queues.receive(name, VisibilityTimeout=0)) == 2
    assert queues.receive(name) == []  # they are found dead
    wait_until(lambda: queues.available(dead) == 2, "both are in the dead-letter queue")
    assert [each["source"] for each in cli.json("queue", "receive", dead, "--visibility", "0s")] == [name]
    (task,) = cli.json("queue", "redrive", dead)
    assert (task["status"], task["moved"]) == ("COMPLETED", 2)
    assert queues.available(name) == 2
    assert cli.ok("queue", "redrive", dead, "--to", name) == f"moved 0 messages of queue {dead} to queue {name}\n"
    assert "--dead-letter" in cli.refused("queue", "redrive", name, code=1)
    assert "penstock queue list" in cli.refused("queue", "redrive", f"{name}-none", code=1)


def test_ctrl_c_cancels_a_move(cli: Cli, queues: Queues, name: str) -> None:
    dead = queues.create(f"{name}-dead")
    queues.create(name, dead_letter=dead)
    queues.send(dead, *map(str, range(20)))
    process = cli.start("queue", "redrive", dead, "--per-second", "1")
    wait_until(lambda: queues.available(name), "the first is moved")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert 0 < queues.available(name) < 20

    def redrive() -> str:
        done = cli("queue", "redrive", dead, "--json")
        assert done.returncode == 0 or b"There is already a task running" in done.stderr, done
        return done.stdout.decode()

    # The task that is cancelled ends soon; until then, another one is refused.
    task = json.loads(wait_until(redrive, "the first task is over"))
    assert 0 < task["moved"] < 20
    assert queues.available(name) == 20


def test_a_queue_on_a_topic_goes_and_the_topic_stays(cli: Cli, direct: Direct, topic: str, name: str) -> None:
    direct.publish(topic, b"published", b"\xff")
    assert f"attached to topic {topic}" in cli.ok("queue", "create", name, "--from-topic", topic)
    received = cli.json("queue", "receive", name, "--max", "2", "--wait", "10s")
    assert [(each["body"], each["encoding"]) for each in received] == [("published", None), ("/w==", "base64")]
    cli.ok("queue", "delete", name, "--yes")
    assert direct.values(topic) == [b"published", b"\xff"]


def test_a_fifo_queue_takes_groups_and_drops_duplicates(cli: Cli, queues: Queues, name: str) -> None:
    fifo = f"{name}.fifo"
    cli.ok("queue", "create", fifo, "--partitions", "2")
    arguments = ("queue", "send", fifo, "x", "--group", "g", "--deduplication-id", "1")
    first, again = cli.json(*arguments), cli.json(*arguments)
    assert first == again
    header, row = table(cli.ok("queue", "receive", fifo))
    assert dict(zip(header, row, strict=True))["GROUP"] == "g"
    assert "MessageGroupId" in cli.refused("queue", "send", fifo, "x", code=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", "x", "--delay", "soon"), "'soon' is not a duration"),
        (("create", "x", "--max-receives", "3"), "--dead-letter QUEUE"),
        (("create", "x", "--fifo"), "must end in .fifo: x.fifo"),
        (("send", "x", "a", "b", "--deduplication-id", "1"), "for a single message"),
        (("delete", "x"), "give --yes"),
        (("list", "--access-key", "A"), "belong together"),
        (("list", "--endpoint", "http://x/y"), "HOST:PORT"),
    ],
)
def test_misuse_is_reported_on_one_line(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    assert message in cli.refused("queue", *arguments, code=2)


def test_no_queue_and_no_message_say_what_to_do(cli: Cli, queue: str) -> None:
    done = cli("queue", "receive", queue)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"--wait 20s" in done.stderr
    assert b"penstock queue create" in cli("queue", "list", "--prefix", "no-such").stderr
    assert "there is no queue 'none'" in cli.refused("queue", "send", "none", "x", code=1)
    error = cli.refused("queue", "delete-message", queue, "nonsense", code=1)
    assert "not a valid receipt handle" in error
    assert "connection refused" in cli.refused("queue", "list", "--endpoint", "127.0.0.1:1", code=1)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """The command, against a broker that wants signatures."""
    folder = tmp_path_factory.mktemp("guarded")
    keys: Path = folder / "keys.yaml"
    keys.write_text(KEYS)
    process = ServeProcess(folder, "--credentials", str(keys))
    yield Cli(process.bootstrap)
    process.stop()


def test_requests_are_signed_by_options_or_by_the_environment(guarded: Cli) -> None:
    assert "--access-key" in guarded.refused("queue", "create", "jobs", code=1)
    keys = ("--access-key", "AKADMIN", "--secret-key", "admin-secret")
    guarded.ok("queue", "create", "jobs", *keys)
    assert "SignatureDoesNotMatch" in guarded.refused("queue", "list", *keys[:3], "wrong", code=1)
    guarded.environment |= {"AWS_ACCESS_KEY_ID": "AKADMIN", "AWS_SECRET_ACCESS_KEY": "admin-secret"}
    assert guarded.json("queue", "list")[0]["queue"] == "jobs"


def test_the_keys_say_whose_queues_are_meant(guarded: Cli) -> None:
    for key, secret, body in (("AKADMIN", "admin-secret", "mine"), ("AKOTHER", "other-secret", "theirs")):
        keys = ("--access-key", key, "--secret-key", secret)
        guarded.ok("queue", "create", "both-dead", *keys)
        guarded.ok("queue", "create", "both", "--dead-letter", "both-dead", "--max-receives", "1", *keys)
        guarded.ok("queue", "send", "both", body, *keys)
        assert body in guarded.ok("queue", "receive", "both", "--visibility", "0s", *keys)
        guarded("queue", "receive", "both", "--wait", "0s", *keys)  # once too often
        looked_at = guarded.ok("queue", "receive", "both-dead", "--wait", "20s", "--visibility", "0s", *keys)
        assert body in looked_at
        assert "moved 1 message of queue both-dead back" in guarded.ok("queue", "redrive", "both-dead", *keys)
        assert body in guarded.ok("queue", "receive", "both", "--delete", *keys)
    listed = guarded.json("queue", "list", *keys)
    assert [row["queue"] for row in listed] == ["both", "both-dead"]
    error = guarded.refused("queue", "describe", "jobs", *keys, code=1)
    assert "there is no queue 'jobs'" in error
