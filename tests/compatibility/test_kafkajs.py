"""JavaScript applications with kafkajs: administration, group rebalances and transactions."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.waiting import wait_until

from .conftest import Target
from .expectations import (
    CONSUMED_S,
    KEYS,
    PARTITIONS,
    REBALANCE_S,
    owned,
    transformed,
    values_by_key,
    wait_consumed,
    wait_shared,
)
from .toolchains import Application, node, node_modules, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SEED = random.randrange(2**32)


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    return node_modules()


@pytest.fixture
def topics(environment: dict[str, str], target: Target, tmp_path: Path) -> Iterator[Application]:
    application = Application(node("topics"), target.bootstrap, tmp_path, environment)
    yield application
    application.end()


def test_topics_groups_and_offsets_are_administered(target: Target, topics: Application) -> None:
    topic, group = "js-admin", "js-admin"
    assert values("created", topics.run("create", topic, PARTITIONS, target.replicas)) == [True, False]
    assert topics.run("produce", topic, 0, 400) == "produced 400\n"
    offsets = values("offsets", topics.run("offsets", topic))
    assert [found["partition"] for found in offsets] == list(range(PARTITIONS))
    assert all(found["low"] == "0" and found["high"] == found["offset"] for found in offsets)
    assert sum(int(found["high"]) for found in offsets) == 400

    member = topics.start("consume", topic, group)
    wait_consumed([member], 400)
    described = {"groupId": group, "protocolType": "consumer", "protocol": "RoundRobinAssigner"}
    assert values("group", topics.run("group", group)) == [{**described, "state": "Stable", "members": 1}]
    member.stop()
    after = topics.run("group", group)
    assert values("group", after) == [{**described, "protocol": "", "state": "Empty", "members": 0}]
    assert values("committed", after) == [{"topic": topic, "total": 400}]


def test_a_group_consumes_everything_when_a_member_is_stopped(target: Target, topics: Application) -> None:
    topic, group = "js-group", "js-group"
    topics.run("create", topic, PARTITIONS, target.replicas)
    members = [topics.start("consume", topic, group) for _ in range(2)]
    wait_shared(members)
    topics.run("produce", topic, 0, 1000)
    wait_consumed(members, 1000)
    assert all(member.values("record") for member in members)
    members[0].stop()
    assert members[0].lines[-1] == "closed true"
    wait_until(lambda: owned(members[1]) == list(range(PARTITIONS)), "one member owns every partition", REBALANCE_S)
    topics.run("produce", topic, 1000, 1000)
    wait_consumed(members, 2000)
    members[1].stop()
    for member in members:
        for record in member.values("record"):
            assert record["key"] == f"key-{int(record['value']) % KEYS}"
            assert record["headers"] == {"half": str(int(record["value"]) // 2)}
    assert values("committed", topics.run("group", group)) == [{"topic": topic, "total": 2000}]


def test_transactions_are_exactly_once_when_the_process_is_killed(target: Target, topics: Application) -> None:
    print(f"seed {SEED}")  # noqa: T201
    rng = random.Random(SEED)
    topic, output, group = "js-input", "js-output", "js-eos"
    for name in (topic, output):
        topics.run("create", name, PARTITIONS, target.replicas)
    reader = topics.start("consume", output, "js-reader")  # reads committed records, the default of kafkajs
    sent = 0
    for turn in range(4):
        topics.run("produce", topic, sent, 500)
        sent += 500
        is_last = turn == 3
        program = topics.start("transform", topic, output, group, "js-eos", -1 if is_last else rng.randrange(4))
        if not is_last:
            program.wait_line("open ")
            program.kill()  # its open transaction has records in the output and offsets in the group
    wait_until(lambda: len(reader.values("record")) >= sent, "everything is transformed", CONSUMED_S)
    program.stop()
    assert values("committed", topics.run("group", group)) == [{"topic": topic, "total": sent}]
    # One more record of each key: when these are consumed, nothing before them can be missing.
    topics.run("produce", output, 0, KEYS)
    wait_until(lambda: len(reader.values("record")) >= sent + KEYS, "the last records are consumed", CONSUMED_S)
    last = {f"key-{key}": [str(key)] for key in range(KEYS)}
    expected = {key: found + last[key] for key, found in transformed(sent).items()}
    assert values_by_key(reader.values("record")) == expected
