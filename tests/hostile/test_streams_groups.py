"""Streams groups with topologies as large as they may be: assigning their tasks leaves the loop to others."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.groups.streams.requests import SUBTOPOLOGIES_MAX
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from tests.brokers import BrokerProcess
from tests.clients.raw import RawClient
from tests.clients.waiting import wait_until

from .full_broker import find_coordinator
from .probe import Probe

GROUP = "streams"
SIZES = [pytest.param(200, 10, id="2000"), pytest.param(1000, 10, id="10000", marks=pytest.mark.slow)]


def _topology(count: int) -> Topology:
    nothing: dict[str, Any] = {
        "source_topic_regex": (),
        "state_changelog_topics": (),
        "repartition_sink_topics": (),
        "repartition_source_topics": (),
        "copartition_groups": (),
    }
    return Topology(
        epoch=0,
        subtopologies=[
            Subtopology(subtopology_id=str(number), source_topics=("lines",), **nothing) for number in range(count)
        ],
    )


def _beat(raw: RawClient, member_id: str, epoch: int, **values: Any) -> Any:
    request = StreamsGroupHeartbeatRequest(
        group_id=GROUP, member_id=member_id, member_epoch=epoch, endpoint_information_epoch=0, **values
    )
    return raw.ask(request, 1)


def _join(raw: RawClient, member_id: str, topology: Topology) -> Any:
    said: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "process_id": member_id, "topology": topology}
    return _beat(raw, member_id, 0, active_tasks=(), standby_tasks=(), warmup_tasks=(), **said)


@pytest.mark.parametrize(("partitions", "subtopologies"), SIZES)
def test_many_tasks_do_not_hold_the_loop(
    partitions: int, subtopologies: int, own_target: Callable[..., BrokerProcess]
) -> None:
    target = own_target()
    probe = Probe(target)
    with RawClient(target.address) as raw:
        raw.socket.settimeout(90.0)
        lines = CreatableTopic(
            name="lines", num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        assert raw.ask(CreateTopicsRequest(topics=[lines], timeout_ms=60_000), 7).topics[0].error_code == 0
        find_coordinator(raw, GROUP, 0)
        with probe.watch(f"{partitions * subtopologies} tasks of a streams group"):
            epoch = _join(raw, "one", _topology(subtopologies)).member_epoch
            found: list[Any] = []

            def has_all() -> bool:
                answer = _beat(raw, "one", found[-1].member_epoch if found else epoch)
                assert answer.error_code == 0, answer.error_message
                found.append(answer)
                return bool(answer.active_tasks)

            wait_until(has_all, "tasks are assigned")
            active = found[-1].active_tasks
            assert sum(len(entry.partitions) for entry in active) == partitions * subtopologies
            assert _join(raw, "two", _topology(subtopologies)).error_code == 0
            assert _beat(raw, "one", -1).error_code == 0


def test_a_topology_that_is_too_large_is_refused(target: BrokerProcess) -> None:
    with RawClient(target.address) as raw:
        find_coordinator(raw, GROUP, 0)
        refused = _join(raw, "one", _topology(SUBTOPOLOGIES_MAX + 1))
        assert refused.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
        assert refused.error_message == "the topology has 501 subtopologies; 500 are allowed"
