"""A coordinator partition whose new leader is still loading: its groups, and those beside it, are not listed yet."""

import os
import signal
from pathlib import Path
from typing import Any

from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import GROUPS_TOPIC
from penstock.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.clusters import ClusterProcesses
from tests.damaged_internal_topics import TOPIC, commit_all, groups_by_partition, make_topic

from .raw import RawClient
from .raw_members import COMMIT_VERSION, find_coordinator
from .waiting import wait_until

PARTITIONS = 12
GROUPS = [f"group-{number}" for number in range(200)]
LOADING = r'penstock_coordinator_unloaded_partitions{coordinator="group",state="loading"}'
NEVER_S = 1200


def partitions_of(raw: RawClient) -> dict[int, Any]:
    return {state.partition_index: state for state in raw.describe(GROUPS_TOPIC).partitions}


def log_size(raw: RawClient, partition: int) -> int:
    topics = [DescribableLogDirTopic(topic=GROUPS_TOPIC, partitions=[partition])]
    return raw.ask(DescribeLogDirsRequest(topics=topics), 4).results[0].topics[0].partitions[0].partition_size


def test_groups_are_listed_when_the_new_leader_has_loaded_them(tmp_path: Path) -> None:
    """A new leader loads until the rest of the ISR has fetched what it replays; the other replica is paused here.

    Without an error, clients would take the list for complete, though groups are missing.
    """
    settings = {"offsets.topic.num.partitions": PARTITIONS, "replica.lag.time.max.ms": 1000 * NEVER_S}
    cluster = ClusterProcesses(tmp_path, settings=settings, session_s=NEVER_S)
    paused = 0
    try:
        with RawClient(cluster.brokers[1].address) as raw:
            find_coordinator(raw, GROUPS[0])
            controller = raw.ask(MetadataRequest(topics=[]), 12).controller_id
            states = partitions_of(raw)
        partition = next(
            number
            for number, state in states.items()
            if state.replica_nodes[2] != controller and state.leader_id == state.replica_nodes[0]
        )
        leader, successor, follower = states[partition].replica_nodes
        make_topic(cluster.bootstrap)
        homes = groups_by_partition(GROUPS, PARTITIONS)
        late = next(group for group, home in homes.items() if home == partition)
        earlier = [group for group in GROUPS[:20] if group != late]
        commit_all(cluster.bootstrap, earlier)

        paused = cluster.brokers[follower].pid
        os.kill(paused, signal.SIGSTOP)
        with RawClient(cluster.brokers[leader].address) as old, RawClient(cluster.brokers[successor].address) as raw:
            before = log_size(raw, partition)
            entry = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
            topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[entry])]
            old.send(OffsetCommitRequest(group_id=late, member_id="", topics=topics), COMMIT_VERSION)
            wait_until(lambda: log_size(raw, partition) > before, "the next leader has the record, not committed")
            cluster.lose(leader)
            wait_until(lambda: partitions_of(raw)[partition].leader_id == successor, "the next leader is elected")
            wait_until(lambda: cluster.brokers[successor].metric(LOADING) >= 1, "it loads")
            answer = raw.ask(ListGroupsRequest(), 5)
            assert (answer.error_code, answer.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])

            os.kill(paused, signal.SIGCONT)
            paused = 0
            wait_until(lambda: raw.ask(ListGroupsRequest(), 5).error_code == ErrorCode.NONE, "all is loaded")
            led = {number for number, state in partitions_of(raw).items() if state.leader_id == successor}
            listed = {group.group_id for group in raw.ask(ListGroupsRequest(), 5).groups}
            assert listed == {group for group in [*earlier, late] if homes[group] in led}
            assert late in listed
    finally:
        if paused:
            os.kill(paused, signal.SIGCONT)
        cluster.finish()
