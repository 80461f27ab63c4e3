"""A Spark batch with very many tasks: its CommitSet is prepared in slices, and its markers are written in slices."""

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.spark_ids import transactional_id
from penstock.wire.messages.commit_set import COMMITTED
from tests.brokers import BrokerProcess
from tests.clients.driver_confluent import ConfluentDriver
from tests.clients.raw import RawClient
from tests.clients.test_commit_set import commit, has_ended, wrote

from .probe import Probe


@pytest.mark.parametrize("count", [250, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_tasks_are_committed_by_one_decision(target: BrokerProcess, probe: Probe, count: int) -> None:
    topic, query = f"tasks-{count}", f"query-{count}"
    ConfluentDriver(target.kafka).create_topic(topic, 2)
    with RawClient(target.address) as raw:
        raw.socket.settimeout(90.0)
        tasks = [
            wrote(raw, topic, transactional_id(query, number, "0.0"), b"x", partitions=2) for number in range(count)
        ]
        with probe.watch(f"commit-set-of-{count}-tasks"):
            answer = commit(raw, query, 0, *tasks)
            assert (answer.error_code, answer.outcome) == (ErrorCode.NONE, COMMITTED)
            names = [task.transactional_id for task in tasks]
            assert has_ended(raw, *names[:: count // 20]) == {"CompleteCommit"}
