"""Go applications with franz-go: administration, compression, group rebalances and exactly-once transactions."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.waiting import wait_until

from .conftest import Target
from .expectations import KEYS, PARTITIONS, REBALANCE_S, owned, transformed, values_by_key, wait_consumed, wait_shared
from .toolchains import Application, Program, go_binary, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PROTOCOLS = ("classic", "consumer")
SEED = random.randrange(2**32)


@pytest.fixture(scope="module")
def binary() -> str:
    return go_binary("client")


@pytest.fixture
def client(binary: str, target: Target, tmp_path: Path) -> Iterator[Application]:
    application = Application([binary], target.bootstrap, tmp_path)
    yield application
    application.end()


def test_topics_and_offsets_are_administered(target: Target, client: Application) -> None:
    topic = "go-admin"
    assert client.run("admin", topic, target.replicas).splitlines() == [
        'created again "TOPIC_ALREADY_EXISTS: Topic with this name already exists."',
        f"partitions and replicas [[0,{target.replicas}],[1,{target.replicas}],[2,{target.replicas}]]",
        'retention.ms "-1"',
        "start [0,0,0]",
        "end [10,5,0]",
        "from 1006 ms [4,2,0]",
        "low watermark 4",
        "start after deletion [4,0,0]",
        "deleted true",
    ]
    # Another broker of a cluster can show the topic for a moment after the controller has deleted it.
    missing = 'topic "UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition."\n'
    wait_until(lambda: client.run("describe", topic) == missing, "the topic is deleted")


def test_every_codec_keeps_keys_headers_and_order(target: Target, client: Application) -> None:
    topic = "go-codecs"
    client.run("create", topic, PARTITIONS, target.replicas)
    for turn, codec in enumerate(CODECS):
        assert client.run("produce", topic, codec, turn * 1000, 1000) == "produced 1000\n"
    found = values("record", client.run("read", topic, "uncommitted"))
    assert values_by_key(found) == {f"key-{key}": [str(n) for n in range(key, 5000, KEYS)] for key in range(KEYS)}
    for record in found:
        number = int(record["value"])
        codec = CODECS[number // 1000]
        assert record["headers"] == {"codec": codec, "half": str(number // 2)}
        assert record["codec"] == codec  # of the batch, as it is in the log


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_consumes_everything_when_a_member_is_closed(
    target: Target, client: Application, protocol: str
) -> None:
    topic, group = f"go-{protocol}", f"go-{protocol}"
    client.run("create", topic, PARTITIONS, target.replicas)
    members = [client.start("consume", topic, group, protocol) for _ in range(2)]
    wait_shared(members)
    for listed in PROTOCOLS:  # the client has not fallen back to the other protocol
        assert (group in values("groups", client.run("groups", listed))[0]) == (listed == protocol)
    client.run("produce", topic, "lz4", 0, 1000)
    wait_consumed(members, 1000)
    assert all(member.values("record") for member in members)
    members[0].stop()
    assert members[0].lines[-1] == "closed true"
    wait_until(lambda: owned(members[1]) == list(range(PARTITIONS)), "one member owns every partition", REBALANCE_S)
    client.run("produce", topic, "zstd", 1000, 1000)
    wait_consumed(members, 2000)
    # Members commit what they have polled before a rebalance, so that nothing is consumed again.
    assert sum(len(member.values("record")) for member in members) == 2000

    members.append(client.start("consume", topic, group, protocol))
    wait_shared(members[1:])
    client.run("produce", topic, "none", 2000, 500)
    wait_consumed(members, 2500)
    for member in members[1:]:
        member.stop()
    late = client.start("consume", topic, group, protocol)
    wait_until(lambda: owned(late) == list(range(PARTITIONS)), "the late member owns every partition", REBALANCE_S)
    client.run("produce", topic, "none", 2500, 100)
    wait_consumed([*members, late], 2600)
    assert sorted(int(record["value"]) for record in late.values("record")) == list(range(2500, 2600))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_transactions_are_exactly_once_when_processes_are_killed(
    target: Target, client: Application, protocol: str
) -> None:
    print(f"seed {SEED}")  # noqa: T201
    rng = random.Random(SEED)
    topic, output = f"go-input-{protocol}", f"go-output-{protocol}"
    for name in (topic, output):
        client.run("create", name, PARTITIONS, target.replicas)
    sent = 0

    def feed(count: int) -> None:
        nonlocal sent
        client.run("produce", topic, rng.choice(CODECS), sent, count)
        sent += count

    def start(number: int, stall_after: int) -> Program:
        group, transactional_id = f"go-eos-{protocol}", f"go-{protocol}-{number}"
        return client.start("transform", topic, output, group, protocol, transactional_id, stall_after)

    def is_transformed() -> bool:
        return len(values("record", client.run("read", output, "committed"))) >= sent

    running = [start(0, -1), start(1, -1)]
    for turn in range(3):
        number = turn % 2
        running[number].kill()
        running[number] = start(number, rng.randrange(3))
        wait_shared(running)
        feed(800)
        running[number].wait_line("open ")
        running[number].kill()  # its open transaction has records in the output
        feed(200)
        running[number] = start(number, -1)
        wait_until(is_transformed, "everything is transformed", 300, 0.5)
    for program in running:
        program.stop()
    assert values_by_key(values("record", client.run("read", output, "committed"))) == transformed(sent)
    # The records of the aborted transactions are in the log; read_committed hides them.
    assert len(values("record", client.run("read", output, "uncommitted"))) > sent
