"""Table of SQS errors: code, HTTP status, and when they are returned."""

from collections.abc import Mapping
from typing import Final

from penstock.reference.tables import table
from penstock.sqs import errors
from penstock.sqs.errors import REFUSALS, Fault

WHEN: Final[Mapping[Fault, str]] = {
    errors.QUEUE_DOES_NOT_EXIST: (
        "There is no such queue. In the Query protocol the message ends with “for this wsdl version”."
    ),
    errors.QUEUE_NAME_EXISTS: "A queue of this name has other attributes, or a topic of this name is not a queue's.",
    errors.QUEUE_DELETED_RECENTLY: (
        "With `sqs.limits=strict`: a queue of this name was deleted less than 60 seconds ago."
    ),
    errors.PURGE_IN_PROGRESS: "With `sqs.limits=strict`: the queue was purged less than 60 seconds ago.",
    errors.INVALID_ATTRIBUTE_NAME: "There is no such attribute, or it cannot be set.",
    errors.INVALID_ATTRIBUTE_VALUE: "The attribute cannot have this value.",
    errors.INVALID_MESSAGE_CONTENTS: "The body has characters that XML cannot carry.",
    errors.RECEIPT_HANDLE_IS_INVALID: (
        "It is not a receipt handle, or belongs to another queue; in DeleteMessageBatch also if it has expired."
    ),
    errors.MESSAGE_NOT_IN_FLIGHT: "ChangeMessageVisibility of a message that was never received.",
    errors.OVER_LIMIT: "Too many messages of a standard queue are in flight, or a policy would be too long.",
    errors.EMPTY_BATCH: "A batch has no entries.",
    errors.TOO_MANY_ENTRIES: "A batch has too many entries.",
    errors.IDS_NOT_DISTINCT: "Two entries of a batch have the same id.",
    errors.BATCH_TOO_LONG: "The messages of a batch are too large together.",
    errors.INVALID_BATCH_ID: (
        "The id of an entry has other characters than letters, digits, `-` and `_`, or too many."
    ),
    errors.REQUEST_THROTTLED: "More deduplication ids arrived within five minutes than can be tracked.",
    errors.RESOURCE_NOT_FOUND: "A move task or its queue, or the topic to attach a queue to, does not exist.",
    errors.INVALID_PARAMETER_VALUE: (
        "A value is out of bounds, a receipt handle has expired, or a move task is already running."
    ),
    errors.MISSING_PARAMETER: "A required parameter is missing.",
    errors.INVALID_ACTION: "There is no such action.",
    errors.UNKNOWN_OPERATION: "A request of the Query protocol names no action.",
    errors.INVALID_REQUEST: "`/_aws/sqs/messages` is for ReceiveMessage only.",
    errors.SERIALIZATION: "Malformed JSON, or a value of the wrong type.",
    errors.MALFORMED_QUERY: "Parameters of the Query protocol contradict each other, or are too many.",
    errors.INTERNAL_FAILURE: "A bug in the broker; see its log.",
    errors.SERVICE_UNAVAILABLE: (
        "The leader of a partition is being replaced, or cannot be reached: SDKs retry. Whether a message was sent "
        "is then unknown, as with AWS; a FIFO queue detects duplicates."
    ),
    REFUSALS["MissingAuthenticationToken"]: "The request is not signed.",
    REFUSALS["IncompleteSignature"]: "The signature is malformed.",
    REFUSALS["InvalidClientTokenId"]: "There is no such access key.",
    REFUSALS["SignatureDoesNotMatch"]: "Another secret, another service, or the request was changed in transit.",
    REFUSALS["RequestExpired"]: (
        "The request was signed more than 15 minutes ago or in the future, or a presigned URL has expired."
    ),
    REFUSALS["AccessDenied"]: (
        "The key does not allow this action or this queue; or the queue belongs to another account, which does not "
        "allow it, or does not exist."
    ),
}
"""SQS errors that brokers return, with the situation in which they return each."""

_SQS: Final = "AWS.SimpleQueueService."
NEVER: Final[Mapping[str, str]] = {
    f"{_SQS}UnsupportedOperation": "All actions are served.",
    "InvalidAddress": "Only the account and the name at the end of a queue URL are used.",
    "InvalidSecurity": "Requests over HTTP without TLS are served.",
    "KmsAccessDenied": "There is no KMS; the same applies to KmsDisabled, KmsInvalidKeyUsage, KmsInvalidState, "
    "KmsNotFound, KmsOptInRequired and KmsThrottled.",
}
"""AWS errors that brokers never return, with the reason."""


def error_table() -> str:
    found = [[fault.code, str(fault.status), fault.type.partition("#")[2], when] for fault, when in WHEN.items()]
    absent = [[code, "never", "", why] for code, why in NEVER.items()]
    return table(("code", "status", "name in JSON", "when"), sorted(found) + absent)
