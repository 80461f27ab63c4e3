"""Table of Kafka error codes: when brokers return them, and whether clients retry."""

from collections.abc import Mapping
from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.reference.tables import table

_SECURITY: Final = "Never yet: security is not implemented."
_QUORUM: Final = "Never: only for KRaft controllers."
_FOLLOWERS: Final = "Never: only for requests between Kafka brokers."
_OLD: Final = "Never, as in Kafka 4."

WHEN: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "A bug in the broker; see its log.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The offset is before the log start offset or after the log end offset.",
    ErrorCode.CORRUPT_MESSAGE: "The checksum or the structure of a record batch is wrong.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "The topic or the partition does not exist.",
    ErrorCode.LEADER_NOT_AVAILABLE: "The topic was created just now, or none of its replicas in sync is running.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "Another broker leads the partition.",
    ErrorCode.REQUEST_TIMED_OUT: (
        "The replicas have not confirmed in time: the records may have been written. For an administrative request: "
        "the work continues."
    ),
    ErrorCode.REPLICA_NOT_AVAILABLE: "AlterReplicaLogDirs of a partition without a replica on this broker.",
    ErrorCode.MESSAGE_TOO_LARGE: (
        "A batch is larger than `max.message.bytes`, or larger than `decompressed.batch.max.bytes` where the broker "
        "has to decompress it."
    ),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "The text of a committed offset is longer than `offset.metadata.max.bytes`.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is reading its partition of an internal topic.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: (
        "There is no coordinator now, it could not write its state, or its partition of an internal topic is damaged."
    ),
    ErrorCode.NOT_COORDINATOR: "Another broker is the coordinator.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "The name is not allowed, or the topic is internal and only brokers write to it."
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: "CommitSet: one batch of records cannot hold the decision.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Fewer replicas than `min.insync.replicas` are in sync; nothing was written.",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "Likewise, after the leader has written the records.",
    ErrorCode.INVALID_REQUIRED_ACKS: "`acks` is not 0, 1 or -1.",
    ErrorCode.ILLEGAL_GENERATION: "The group is in another generation; the member must rejoin.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "The member has no protocol in common with the others.",
    ErrorCode.INVALID_GROUP_ID: "The id of the group is empty.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The member is not in the group, or no longer; it must rejoin.",
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "It is not between `group.min.session.timeout.ms` and `group.max.session.timeout.ms`."
    ),
    ErrorCode.REBALANCE_IN_PROGRESS: "The group is rebalancing; the member must rejoin.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "AddPartitionsToTxn of an internal topic.",
    ErrorCode.INVALID_TIMESTAMP: (
        "A timestamp is too far in the past or in the future for the topic's settings, or a delivery time is invalid."
    ),
    ErrorCode.UNSUPPORTED_VERSION: "The version of the request, or something in it, is not served.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "A topic or a view of this name exists.",
    ErrorCode.INVALID_PARTITIONS: "The number of partitions is less than one, too large, or less than before.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "The number of replicas is less than one, or there are fewer brokers.",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: (
        "The assignment names a broker twice, an unknown one, or misses a partition."
    ),
    ErrorCode.INVALID_CONFIG: "There is no such setting, it cannot have this value, or it cannot be changed.",
    ErrorCode.INVALID_REQUEST: "The request contradicts itself, or is not allowed in this state.",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "A message set of format v0 or v1; Kafka 4 does not accept it either.",
    ErrorCode.POLICY_VIOLATION: "A rule of Penstock forbids it (views, limits); the message names the rule.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "Earlier records of the idempotent producer are missing.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "A newer producer has the same transactional id.",
    ErrorCode.INVALID_TXN_STATE: "The producer has no transaction in a state that allows this.",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "The transactional id is unknown, expired, or has another producer id.",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "It is not between 1 ms and `transaction.max.timeout.ms`.",
    ErrorCode.CONCURRENT_TRANSACTIONS: "The previous transaction is still being committed or aborted.",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "WriteTxnMarkers of a coordinator that another one has replaced.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Two-phase commit (KIP-939) is not enabled.",
    ErrorCode.SECURITY_DISABLED: "Requests about ACLs: there is no authorizer.",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "AddPartitionsToTxn: another partition of the same request was refused.",
    ErrorCode.KAFKA_STORAGE_ERROR: "The disk refused a write, or the log of the partition is offline.",
    ErrorCode.LOG_DIR_NOT_FOUND: "AlterReplicaLogDirs to another folder than the one that the broker has.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "A request about delegation tokens of a client that has not authenticated, or only with such a token."
    ),
    ErrorCode.NON_EMPTY_GROUP: "The group has members; it has to be empty for this.",
    ErrorCode.LISTENER_NOT_FOUND: "The partition's leader does not advertise the listener of the request.",
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no such group, or it is of another kind.",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "The fetch session was evicted, or the broker was restarted.",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "A fetch of the session was repeated or lost.",
    ErrorCode.TOPIC_DELETION_DISABLED: "`delete.topic.enable` is false.",
    ErrorCode.FENCED_LEADER_EPOCH: "The client's leader epoch is older than the broker's.",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "The client's leader epoch is newer than the broker's.",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "There is no such codec, or a client too old for zstd would receive it.",
    ErrorCode.OFFSET_NOT_AVAILABLE: "A new leader does not know its high watermark yet.",
    ErrorCode.MEMBER_ID_REQUIRED: "JoinGroup without a member id: the response has the id to join with.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "ElectLeaders: the preferred replica is not running or not in sync.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "The group has the maximum number of members.",
    ErrorCode.FENCED_INSTANCE_ID: "Another process has the same `group.instance.id`.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "ElectLeaders: no replica is running.",
    ErrorCode.ELECTION_NOT_NEEDED: "ElectLeaders: the partition already has that leader.",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "There is no reassignment to cancel.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "OffsetDelete of a topic that the group is subscribed to.",
    ErrorCode.INVALID_RECORD: "A record that the topic cannot store: on a compacted topic, one without a key.",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "A transaction that has committed offsets for the group is still open.",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "A client pushed metrics too soon; queues: too many messages in flight.",
    ErrorCode.PRODUCER_FENCED: "Another producer has taken over the transactional id.",
    ErrorCode.RESOURCE_NOT_FOUND: "A user, or a credential of a user, does not exist.",
    ErrorCode.DUPLICATE_RESOURCE: "The request names a user or a credential twice.",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "A user's name, or the iterations or salt of its password, are not allowed.",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "The listener does not allow the SASL mechanism, or it is not SCRAM.",
    ErrorCode.ILLEGAL_SASL_STATE: "SASL requests on a listener without SASL, or after a login without a next one.",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "A login failed: wrong user or password. The message says no more.",
    ErrorCode.INVALID_UPDATE_VERSION: "UpdateFeatures to another level than that of the release.",
    ErrorCode.UNKNOWN_TOPIC_ID: "The topic was deleted, and perhaps created again.",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "At start: a broker with this id is already running.",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "UnregisterBroker of a broker that is not running.",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "At start: the data folder belongs to another cluster.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "DescribeTransactions: the transactional id is unknown.",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "A fetch session changes between topic names and topic ids.",
    ErrorCode.FENCED_MEMBER_EPOCH: "The member epoch is not current; the member revokes all partitions and rejoins.",
    ErrorCode.UNRELEASED_INSTANCE_ID: "A member that has not left has the same `group.instance.id`.",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "There is no server-side assignor of this name.",
    ErrorCode.STALE_MEMBER_EPOCH: "A commit with a member epoch that is not the current one.",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "DescribeCluster for controllers, sent to a broker.",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "DescribeCluster for an endpoint type other than brokers and controllers.",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: (
        "The subscription to client metrics has changed; the client fetches it again."
    ),
    ErrorCode.TELEMETRY_TOO_LARGE: "Pushed metrics are larger than `telemetry.max.bytes`.",
    ErrorCode.TRANSACTION_ABORTABLE: "A partition was not added to the transaction; abort it and begin another.",
    ErrorCode.INVALID_RECORD_STATE: "An acknowledgement of a record that the member has not acquired, or no longer.",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "The share session is gone, for example after a restart.",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "A share fetch of the session was repeated or lost.",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "The expression is not one of RE2, or is too large.",
    ErrorCode.REBOOTSTRAP_REQUIRED: (
        "ApiVersions: the client has reached another cluster or broker than expected (KIP-1242)."
    ),
    ErrorCode.STREAMS_INVALID_TOPOLOGY: "The topology of a streams group contradicts itself, or is too large.",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "The broker has the maximum number of share sessions.",
}
"""Kafka error codes that brokers return, with the situation in which they return each."""

NEVER: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.INVALID_FETCH_SIZE: _OLD,
    ErrorCode.BROKER_NOT_AVAILABLE: "Never: clients of Penstock use it when they reach no broker.",
    ErrorCode.STALE_CONTROLLER_EPOCH: _QUORUM,
    ErrorCode.NETWORK_EXCEPTION: "Never: clients of Penstock use it when a connection breaks.",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: _OLD,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _SECURITY,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _SECURITY,
    ErrorCode.NOT_CONTROLLER: "Never: any broker serves administrative requests.",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "Never: the response to a duplicate batch has the offset of the first one.",
    ErrorCode.UNKNOWN_PRODUCER_ID: _OLD,
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "Never: a new reassignment replaces the previous one.",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "`delegation.token.secret.key` is not set.",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "No delegation token has this HMAC.",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: (
        "The client is neither the owner nor a renewer of the delegation token."
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "The client may not create delegation tokens of this user.",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "The delegation token has expired.",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "The owner or a renewer of a delegation token is not a user.",
    ErrorCode.STALE_BROKER_EPOCH: _FOLLOWERS,
    ErrorCode.INCONSISTENT_VOTER_SET: _QUORUM,
    ErrorCode.FEATURE_UPDATE_FAILED: _QUORUM,
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: _QUORUM,
    ErrorCode.SNAPSHOT_NOT_FOUND: _QUORUM,
    ErrorCode.POSITION_OUT_OF_RANGE: _QUORUM,
    ErrorCode.INCONSISTENT_TOPIC_ID: "Never: a deleted topic is answered with UNKNOWN_TOPIC_ID.",
    ErrorCode.INELIGIBLE_REPLICA: _FOLLOWERS,
    ErrorCode.NEW_LEADER_ELECTED: _FOLLOWERS,
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "Never: there is no tiered storage.",
    ErrorCode.UNKNOWN_CONTROLLER_ID: _QUORUM,
    ErrorCode.INVALID_REGISTRATION: _QUORUM,
    ErrorCode.FENCED_STATE_EPOCH: "Never: delivery state of share groups is kept beside the partition.",
    ErrorCode.INVALID_VOTER_KEY: _QUORUM,
    ErrorCode.DUPLICATE_VOTER: _QUORUM,
    ErrorCode.VOTER_NOT_FOUND: _QUORUM,
    ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: "Never: a group has one topology at a time.",
    ErrorCode.STREAMS_TOPOLOGY_FENCED: "Never: a group has one topology at a time.",
    ErrorCode.GROUP_DELETION_FAILED: "Never: no external system takes part in the deletion of a group.",
    ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED: "Never: KIP-1331 is not served.",
    ErrorCode.CONTROLLER_ID_NOT_REGISTERED: _QUORUM,
}
"""Kafka error codes that brokers never return, with the reason."""

RETRIABLE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
"""Kafka error codes that clients treat as retriable: the client or the application may repeat the request."""


def error_codes() -> str:
    """Returns a table of every error code of Kafka 4.4."""
    rows = (
        [str(int(code)), code.name, WHEN.get(code) or NEVER[code], "yes" if code in RETRIABLE else "no"]
        for code in sorted(ErrorCode)
        if code is not ErrorCode.NONE
    )
    return table(("code", "name", "when Penstock returns it", "clients retry"), rows)
