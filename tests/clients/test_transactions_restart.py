"""Transactions through killed brokers and killed producers."""

import gc
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.foundation.codes import ErrorCode
from tests.brokers import BrokerProcess

from .conftest import QUICK_GROUPS, QUICK_MAINTENANCE
from .driver_confluent import ConfluentDriver
from .drivers import Outgoing
from .raw import RawClient
from .raw_members import RawProducer, find_coordinator
from .test_groups_commits import ConfluentCommitter
from .test_transactions_errors import begun, init, state_of
from .test_transactions_offsets import offset_of
from .transactional_producers import READ_UNCOMMITTED, TRANSACTORS, ConfluentTransactor, read_to_end
from .waiting import wait_until

OWN = (
    QUICK_GROUPS | QUICK_MAINTENANCE | {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 3}
)
KILLS = (
    ("begin", True),
    ("write", False),
    ("commit offsets", True),
    ("end", False),
    ("end", True),
    ("nothing", True),
)
"""The step before which the broker is killed, and whether the transaction is to be committed."""


@contextmanager
def quiet_sockets(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """kafka-python leaves sockets open when it connects again; use with `filterwarnings`."""
    caplog.set_level(logging.CRITICAL, logger="kafka")  # what it logs would hold them beyond the test
    yield
    gc.collect()  # while the warnings are ignored


FIRST = next(iter(TRANSACTORS))


@pytest.mark.parametrize(
    "library", [FIRST, *(pytest.param(other, marks=pytest.mark.slow) for other in TRANSACTORS if other != FIRST)]
)
def test_a_transaction_goes_on_after_the_broker_is_killed_at_any_step(
    own_broker: Callable[..., BrokerProcess], library: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed before a step, and started again: the library goes on, and what was acknowledged holds."""
    with quiet_sockets(caplog):
        broker = own_broker(OWN)
        ConfluentDriver(broker.kafka).create_topic("orders", 2)
        producer = TRANSACTORS[library](broker.kafka, "id")
        expected: list[bytes] = []

        def maybe_kill(wanted: bool) -> None:
            if wanted:
                broker.kill()
                broker.start()

        for number, (fatal, commits) in enumerate(KILLS):
            value = b"%d" % number
            maybe_kill(fatal == "begin")
            producer.begin()
            maybe_kill(fatal == "write")
            for partition in range(2):
                producer.send("orders", value, partition)
            producer.flush()
            maybe_kill(fatal == "commit offsets")
            producer.send_offsets({("orders", 0): number + 1 if commits else 1000}, "group")
            maybe_kill(fatal == "end")
            producer.commit() if commits else producer.abort()
            expected += [value] if commits else []
        for partition in range(2):
            wait_until(
                lambda at=partition: read_to_end(broker.kafka, "orders", at) == expected, f"{expected} and no more"
            )
        assert ConfluentCommitter(broker.kafka, "group").committed([("orders", 0)]) == {
            ("orders", 0): (len(KILLS), "")
        }
        producer.close()


@pytest.mark.parametrize("version", [4, 5])
def test_a_decision_is_carried_out_after_a_restart(own_broker: Callable[..., BrokerProcess], version: int) -> None:
    """Killed right after the answer to EndTxn, maybe before the markers were written."""
    broker = own_broker(OWN)
    ConfluentDriver(broker.kafka).create_topic("orders", 4)
    expected = []
    for number, commits in enumerate((True, False, True)):
        with RawClient(broker.address) as raw:
            producer = RawProducer(raw, "id", version=version)
            init(producer)
            if version == 4:
                assert set(producer.add("orders", *range(4)).values()) == {ErrorCode.NONE}
            for partition in range(4):
                assert producer.produce("orders", b"%d" % number, partition=partition) is ErrorCode.NONE
            assert producer.end(commits) is ErrorCode.NONE
        broker.kill()
        broker.start()
        expected += [b"%d" % number] if commits else []
        with RawClient(broker.address) as raw:
            ended = "CompleteCommit" if commits else "CompleteAbort"
            wait_until(lambda r=raw, s=ended: state_of(r, "id") == s, "the transaction is complete")
        for partition in range(4):
            assert read_to_end(broker.kafka, "orders", partition) == expected


def test_a_transaction_that_was_open_when_the_broker_was_killed_still_times_out(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    broker = own_broker(OWN)
    driver = ConfluentDriver(broker.kafka)
    driver.create_topic("orders", 2)
    with RawClient(broker.address) as raw:
        producer = RawProducer(raw, "id", timeout_ms=2000)
        init(producer)
        began_s = time.monotonic()
        begun(producer, "orders", b"never")
        find_coordinator(raw, "group")
        assert producer.add_offsets("group") is ErrorCode.NONE
        assert producer.commit_offset("group", "orders", 7) is ErrorCode.NONE
    broker.kill()
    broker.start()
    driver.produce("orders", [Outgoing(value=b"after")])
    with RawClient(broker.address) as raw:
        find_coordinator(raw, "group")
        wait_until(lambda: read_to_end(broker.kafka, "orders") == [b"after"], "it is aborted")
        assert time.monotonic() - began_s >= 2.0, "it was aborted too early"
        assert read_to_end(broker.kafka, "orders", isolation=READ_UNCOMMITTED) == [b"never", b"after"]
        wait_until(
            lambda: offset_of(raw, "group", "orders", require_stable=True) == (-1, ErrorCode.NONE), "so is the offset"
        )


PRODUCER = """
import sys
from tests.clients.transactional_producers import TRANSACTORS
library, bootstrap, value = sys.argv[1:]
producer = TRANSACTORS[library](bootstrap, "id")
producer.begin()
for partition in range(2):
    producer.send("orders", value.encode(), partition)
producer.flush()
producer.send_offsets({("orders", 0): 1000}, "group")
print("begun", flush=True)
sys.stdin.read()
producer.commit()
"""


@pytest.mark.parametrize("library", TRANSACTORS)
def test_a_producer_that_was_killed_begins_again_where_nothing_of_it_is_left(
    own_broker: Callable[..., BrokerProcess], library: str
) -> None:
    """Its successor has the same transactional id: it need not wait for the timeout of the one before."""
    broker = own_broker(OWN)
    ConfluentDriver(broker.kafka).create_topic("orders", 2)
    for number in range(2):
        command = [sys.executable, "-W", "ignore", "-c", PRODUCER, library, broker.kafka, f"killed {number}"]
        root = Path(__file__).parents[2]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == b"begun\n"
            finally:
                process.kill()
    assert read_to_end(broker.kafka, "orders") == []
    successor = ConfluentTransactor(broker.kafka, "id")
    successor.begin()
    for partition in range(2):
        successor.send("orders", b"successor", partition)
    successor.send_offsets({("orders", 0): 3}, "group")
    successor.commit()
    for partition in range(2):
        wait_until(lambda at=partition: read_to_end(broker.kafka, "orders", at) == [b"successor"], "only its own")
        everything = read_to_end(broker.kafka, "orders", partition, READ_UNCOMMITTED)
        assert everything == [b"killed 0", b"killed 1", b"successor"]
    assert ConfluentCommitter(broker.kafka, "group").committed([("orders", 0)]) == {("orders", 0): (3, "")}


def test_a_compacted_topic_keeps_the_last_committed_value_of_every_key(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    """Aborted values neither stay nor take others with them; open ones are left alone."""
    broker = own_broker(OWN)
    driver = ConfluentDriver(broker.kafka)
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": "4096",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    }
    driver.create_topic("table", configs=settings)
    producer = ConfluentTransactor(broker.kafka, "id")
    filler = b" " * 300
    for round_ in range(12):
        commits = round_ % 3 != 2
        producer.begin()
        for key in range(5):
            producer.send("table", b"%d of %d%s" % (round_, key, filler), key=b"%d" % key)
        if round_ == 4:
            producer.send("table", b"only once" + filler, key=b"committed")
        if round_ == 5:
            producer.send("table", b"never" + filler, key=b"aborted")
            producer.send("table", None, key=b"committed")
        producer.flush()
        producer.commit() if commits else producer.abort()
    expected = {*(b"10 of %d" % key for key in range(5)), b"only once"}
    driver.produce("table", [Outgoing(key=b"roll", value=filler * 20)])  # so that what came before is compacted

    def is_compacted() -> bool:
        everything = read_to_end(broker.kafka, "table", isolation=READ_UNCOMMITTED)
        return len(everything) <= 25 and b"never" + filler not in everything

    def check() -> None:
        found = [value.strip() for value in read_to_end(broker.kafka, "table")]
        last = dict(zip((value.rpartition(b" ")[2] for value in found), found, strict=True))
        assert expected <= set(found), found
        assert not {b"11 of %d" % key for key in range(5)} & set(found), "aborted"
        assert {last[b"%d" % key] for key in range(5)} == {b"10 of %d" % key for key in range(5)}

    wait_until(is_compacted, "the topic is compacted")
    check()
    producer.begin()
    producer.send("table", b"open of 0" + filler, key=b"0")
    producer.flush()
    check()
    broker.kill()
    broker.start()
    check()
    producer.commit()
    wait_until(lambda: read_to_end(broker.kafka, "table")[-1].strip() == b"open of 0", "what was open is committed")
