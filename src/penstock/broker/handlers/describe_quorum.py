"""DescribeQuorum: refused as unsupported, since brokers form no Raft quorum; metadata is in the metadata store."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import in_cluster
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse


@handles(ApiKey.DESCRIBE_QUORUM, in_cluster(Operation.DESCRIBE))
def describe_quorum(request: DescribeQuorumRequest, call: Call, broker: Broker) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message="brokers form no quorum here: metadata is kept in etcd, in ZooKeeper, or by a single broker",
        topics=[],
    )
