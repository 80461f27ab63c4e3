"""The tree of Penstock errors. Each error has its Kafka error code; each protocol translates errors in one place.

An error message says what is wrong, what was expected and what to do about it.
"""

from typing import ClassVar

from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode


class PenstockError(Exception):
    """Base class of all errors that Penstock raises on purpose."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    @property
    def message(self) -> str:
        return str(self)


class CorruptMessage(PenstockError):
    """A record batch whose bytes are inconsistent."""

    code = ErrorCode.CORRUPT_MESSAGE


class UnsupportedCompression(PenstockError):
    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class MalformedRequest(PenstockError):
    """A frame that cannot be decoded: the connection is closed, as in Kafka."""

    code = ErrorCode.INVALID_REQUEST


class InvalidRequest(PenstockError):
    """A request that can be decoded but is not valid."""

    code = ErrorCode.INVALID_REQUEST


class DuplicateResource(PenstockError):
    """A request names the same thing twice."""

    code = ErrorCode.DUPLICATE_RESOURCE


class ResourceNotFound(PenstockError):
    code = ErrorCode.RESOURCE_NOT_FOUND


class UnacceptableCredential(PenstockError):
    """A user name or a credential that a user cannot have."""

    code = ErrorCode.UNACCEPTABLE_CREDENTIAL


class UnsupportedSaslMechanism(PenstockError):
    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class InvalidRecord(PenstockError):
    code = ErrorCode.INVALID_RECORD


class MessageTooLarge(PenstockError):
    code = ErrorCode.MESSAGE_TOO_LARGE


class InvalidConfig(PenstockError):
    code = ErrorCode.INVALID_CONFIG


class InvalidRegularExpression(PenstockError):
    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class InvalidTimestamp(PenstockError):
    code = ErrorCode.INVALID_TIMESTAMP


class OffsetOutOfRange(PenstockError):
    code = ErrorCode.OFFSET_OUT_OF_RANGE


class OutOfOrderSequence(PenstockError):
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpoch(PenstockError):
    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTxnState(PenstockError):
    """The producer has no open transaction for this batch or marker, or has a transaction that conflicts with it."""

    code = ErrorCode.INVALID_TXN_STATE


class TransactionCoordinatorFenced(PenstockError):
    """A newer transaction coordinator has written a marker for this producer."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class StorageError(PenstockError):
    """The disk rejected a write, or its data is damaged. Only the affected partitions go offline."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class UnknownTopicOrPartition(PenstockError):
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopicId(PenstockError):
    code = ErrorCode.UNKNOWN_TOPIC_ID


class NotLeaderOrFollower(PenstockError):
    """This broker is not the leader of the partition, or has no replica of it."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class OffsetNotAvailable(PenstockError):
    """A new leader does not know its high watermark yet, or a follower has not caught up: clients should retry."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class PolicyViolation(PenstockError):
    code = ErrorCode.POLICY_VIOLATION


class InvalidTopic(PenstockError):
    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class TopicExists(PenstockError):
    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitions(PenstockError):
    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactor(PenstockError):
    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignment(PenstockError):
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class LeaderNotAvailable(PenstockError):
    """A topic or partition currently has no leader: clients should retry soon."""

    code = ErrorCode.LEADER_NOT_AVAILABLE


class CoordinatorNotAvailable(PenstockError):
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class CoordinatorLoadInProgress(PenstockError):
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class NotCoordinator(PenstockError):
    code = ErrorCode.NOT_COORDINATOR


class NotAuthorized(PenstockError):
    """The client may not do this. One subclass for each type of resource."""

    @staticmethod
    def of(principal: str, operation: Operation, resource_type: ResourceType, name: str) -> "NotAuthorized":
        """Returns the error of the subclass for a type of resource."""
        what = "the cluster" if resource_type is ResourceType.CLUSTER else f"{_WORDS[resource_type]} {name!r}"
        verb = operation.name.lower().replace("_", " ")
        return _NOT_AUTHORIZED[resource_type](f"{principal} has no permission for {verb} on {what}")


class TopicAuthorizationFailed(NotAuthorized):
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationFailed(NotAuthorized):
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ClusterAuthorizationFailed(NotAuthorized):
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class TransactionalIdAuthorizationFailed(NotAuthorized):
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class DelegationTokenAuthorizationFailed(NotAuthorized):
    code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


class SecurityDisabled(PenstockError):
    """The request is about ACLs, and the cluster has no authorizer."""

    code = ErrorCode.SECURITY_DISABLED


_WORDS = {resource_type: resource_type.name.lower().replace("_", " ") for resource_type in ResourceType}
_NOT_AUTHORIZED = {
    ResourceType.TOPIC: TopicAuthorizationFailed,
    ResourceType.GROUP: GroupAuthorizationFailed,
    ResourceType.CLUSTER: ClusterAuthorizationFailed,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
    ResourceType.DELEGATION_TOKEN: DelegationTokenAuthorizationFailed,
    ResourceType.USER: DelegationTokenAuthorizationFailed,
}
