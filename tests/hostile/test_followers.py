"""Clients that pose as a follower: they get errors, and commit nothing."""

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tests.brokers import BrokerProcess
from tests.clients.raw import RawClient, batch_of


@pytest.mark.parametrize("replica_id", [0, 1, 2, 2**31 - 1])
@pytest.mark.parametrize("epoch", [-1, 0, 1, 2**62])
def test_a_client_that_poses_as_a_follower_is_refused(target: BrokerProcess, replica_id: int, epoch: int) -> None:
    with RawClient(target.address) as raw:
        described = raw.describe("posed", allow_auto_topic_creation=True)
        assert raw.produce("posed", batch_of([b"x"])).error_code == 0
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            session_id=0,
            session_epoch=-1,
            replica_state=ReplicaState(replica_id=replica_id, replica_epoch=epoch),
            topics=[FetchTopic(topic_id=described.topic_id, partitions=[partition])],
        )
        data = raw.ask(request, 15).responses[0].partitions[0]
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not data.records
