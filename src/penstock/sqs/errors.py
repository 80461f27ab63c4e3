"""AWS error codes of both protocols, with HTTP status and fault (sender or receiver); translates internal errors.

https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/CommonErrors.html
"""

from typing import Final, NamedTuple

from penstock.broker.queues.messages import MoveTaskRunning, NoRedriveSource, NoSuchMoveTask
from penstock.cluster.queues import NameTaken, NoSuchQueue, QueueExists
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidRecord,
    InvalidReplicationFactor,
    InvalidTopic,
    MessageTooLarge,
    PenstockError,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from penstock.queues.errors import OverLimit, TooManyDeduplicationIds
from penstock.security.errors import Refused

_SQS: Final = "com.amazonaws.sqs#"
_COMMON: Final = "com.amazon.coral.service#"


class Fault(NamedTuple):
    """A kind of AWS error: its `type` in the JSON protocol, its `code` in the Query protocol, and its HTTP status."""

    type: str
    code: str
    status: int = 400
    is_sender: bool = True

    @property
    def whose(self) -> str:
        return "Sender" if self.is_sender else "Receiver"


def _own(name: str, code: str = "", status: int = 400) -> Fault:
    """Returns a Fault that only SQS has. Default of `code`: the name with the prefix AWS.SimpleQueueService."""
    return Fault(_SQS + name, code or f"AWS.SimpleQueueService.{name}", status)


def _common(name: str, code: str, status: int = 400, *, is_sender: bool = True) -> Fault:
    """Returns a Fault that all AWS services have in common."""
    return Fault(_COMMON + name, code, status, is_sender)


QUEUE_DOES_NOT_EXIST: Final = _own("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")
QUEUE_NAME_EXISTS: Final = _own("QueueNameExists", "QueueAlreadyExists")
QUEUE_DELETED_RECENTLY: Final = _own("QueueDeletedRecently")
PURGE_IN_PROGRESS: Final = _own("PurgeQueueInProgress", status=403)
INVALID_ATTRIBUTE_NAME: Final = _own("InvalidAttributeName", "InvalidAttributeName")
INVALID_ATTRIBUTE_VALUE: Final = _own("InvalidAttributeValue", "InvalidAttributeValue")
INVALID_MESSAGE_CONTENTS: Final = _own("InvalidMessageContents", "InvalidMessageContents")
RECEIPT_HANDLE_IS_INVALID: Final = _own("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid")
MESSAGE_NOT_IN_FLIGHT: Final = _own("MessageNotInflight")
OVER_LIMIT: Final = _own("OverLimit", "OverLimit", 403)
EMPTY_BATCH: Final = _own("EmptyBatchRequest")
TOO_MANY_ENTRIES: Final = _own("TooManyEntriesInBatchRequest")
IDS_NOT_DISTINCT: Final = _own("BatchEntryIdsNotDistinct")
BATCH_TOO_LONG: Final = _own("BatchRequestTooLong")
INVALID_BATCH_ID: Final = _own("InvalidBatchEntryId")
REQUEST_THROTTLED: Final = _own("RequestThrottled", "RequestThrottled", 403)
RESOURCE_NOT_FOUND: Final = _own("ResourceNotFoundException", "ResourceNotFoundException", 404)

INVALID_PARAMETER_VALUE: Final = _common("InvalidParameterValueException", "InvalidParameterValue")
MISSING_PARAMETER: Final = _common("MissingRequiredParameterException", "MissingParameter")
INVALID_ACTION: Final = _common("UnknownOperationException", "InvalidAction")
UNKNOWN_OPERATION: Final = _common("UnknownOperationException", "UnknownOperationException", 404)
"""Error for a Query request that names no action."""
INVALID_REQUEST: Final = _common("InvalidRequest", "InvalidRequest")
SERIALIZATION: Final = _common("SerializationException", "SerializationException")
MALFORMED_QUERY: Final = _common("MalformedQueryString", "MalformedQueryString", 404)
INTERNAL_FAILURE: Final = _common("InternalFailure", "InternalFailure", 500, is_sender=False)
SERVICE_UNAVAILABLE: Final = _common("ServiceUnavailableException", "ServiceUnavailable", 503, is_sender=False)

REFUSALS: Final[dict[str, Fault]] = {
    "MissingAuthenticationToken": _common("MissingAuthenticationTokenException", "MissingAuthenticationToken", 403),
    "IncompleteSignature": _common("IncompleteSignatureException", "IncompleteSignature"),
    "InvalidClientTokenId": _common("UnrecognizedClientException", "InvalidClientTokenId", 403),
    "SignatureDoesNotMatch": _common("InvalidSignatureException", "SignatureDoesNotMatch", 403),
    "RequestExpired": _common("RequestExpired", "RequestExpired"),
    "AccessDenied": _common("AccessDeniedException", "AccessDenied", 403),
}
"""AWS errors of authentication and authorization, by class name of the internal error in security/errors.py."""

_RETRIABLE: Final = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.BROKER_NOT_AVAILABLE,
}
"""Kafka error codes of transient failures, which are returned with status 503, so that SDKs retry."""


NO_SUCH_QUEUE: Final = "The specified queue does not exist."
NO_QUEUE_OR_NO_ACCESS: Final = "The specified queue does not exist or you do not have access to it."


class SqsError(PenstockError):
    """An error in the form that clients see: AWS's Fault and a message."""

    code = ErrorCode.INVALID_REQUEST

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class UnknownQueue(SqsError):
    """No queue with the full name `name` (such as `111122223333.jobs`, with its account) is in this broker's metadata
    image. The request handler then looks for it in the metadata store, unless `name` is empty."""

    def __init__(self, name: str, fault: Fault = QUEUE_DOES_NOT_EXIST, message: str = NO_SUCH_QUEUE) -> None:
        super().__init__(fault, message)
        self.name = name


def invalid_value(message: str) -> SqsError:
    return SqsError(INVALID_PARAMETER_VALUE, message)


def invalid_parameter(name: str, value: object, reason: str) -> SqsError:
    """Returns an error with AWS's text: `Value 11 for parameter MaxNumberOfMessages is invalid. Reason: …`"""
    return invalid_value(f"Value {value} for parameter {name} is invalid. Reason: {reason}")


def missing(name: str) -> SqsError:
    return SqsError(MISSING_PARAMETER, f"The request must contain the parameter {name}.")


_KNOWN: Final[dict[type[PenstockError], tuple[Fault, str]]] = {
    NoSuchQueue: (QUEUE_DOES_NOT_EXIST, NO_SUCH_QUEUE),
    QueueExists: (QUEUE_NAME_EXISTS, ""),
    NameTaken: (QUEUE_NAME_EXISTS, ""),
    OverLimit: (OVER_LIMIT, ""),
    TooManyDeduplicationIds: (REQUEST_THROTTLED, ""),
    MoveTaskRunning: (
        INVALID_PARAMETER_VALUE,
        "There is already a task running. Only one active task is allowed for a source queue arn at a given time.",
    ),
    NoSuchMoveTask: (RESOURCE_NOT_FOUND, "Task does not exist."),
    NoRedriveSource: (INVALID_PARAMETER_VALUE, "Source queue must be configured as a Dead Letter Queue."),
    MessageTooLarge: (INVALID_PARAMETER_VALUE, ""),
    InvalidRecord: (INVALID_PARAMETER_VALUE, ""),
    InvalidConfig: (INVALID_PARAMETER_VALUE, ""),
    InvalidPartitions: (INVALID_PARAMETER_VALUE, ""),
    PolicyViolation: (INVALID_PARAMETER_VALUE, ""),
    InvalidReplicationFactor: (INVALID_PARAMETER_VALUE, ""),
    InvalidTopic: (INVALID_PARAMETER_VALUE, ""),
    UnknownTopicOrPartition: (RESOURCE_NOT_FOUND, ""),
}
"""AWS error and message by class of the internal error; "" stands for the message of the internal error."""


def translate(error: PenstockError) -> SqsError:
    """Returns the AWS error for an internal error."""
    if isinstance(error, SqsError):
        return error
    if isinstance(error, Refused):
        return SqsError(REFUSALS[type(error).__name__], error.message)
    for kind in type(error).__mro__:
        if kind in _KNOWN:
            fault, words = _KNOWN[kind]
            return SqsError(fault, words or error.message)
    if error.code in _RETRIABLE:
        return SqsError(SERVICE_UNAVAILABLE, f"{error.message or type(error).__name__}; try again")
    return SqsError(INTERNAL_FAILURE, f"The request processing has failed: {error.message or type(error).__name__}")
