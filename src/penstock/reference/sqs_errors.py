"""Table of the errors of the SQS API."""

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
        "It is not a receipt handle, or one of another queue; in DeleteMessageBatch also one that has expired."
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
    errors.REQUEST_THROTTLED: "More deduplication ids came within five minutes than are remembered.",
    errors.RESOURCE_NOT_FOUND: (
        "A move task, or a queue that it names, does not exist; nor the topic that a queue is to be attached to."
    ),
    errors.INVALID_PARAMETER_VALUE: (
        "A value is out of bounds, a receipt has expired, or a move task is running already."
    ),
    errors.MISSING_PARAMETER: "A parameter that is needed is missing.",
    errors.INVALID_ACTION: "There is no such action.",
    errors.UNKNOWN_OPERATION: "A request of the Query protocol names no action.",
    errors.INVALID_REQUEST: "`/_aws/sqs/messages` is for ReceiveMessage only.",
    errors.SERIALIZATION: "JSON that cannot be read, or values of another type.",
    errors.MALFORMED_QUERY: "Parameters of the Query protocol contradict each other, or are too many.",
    errors.INTERNAL_FAILURE: "A bug of the broker; its log has the details.",
    errors.SERVICE_UNAVAILABLE: (
        "The leader of a partition is being replaced, or cannot be reached: SDKs try again. Whether a message was "
        "sent is "
        "then not known, as with AWS; a FIFO queue finds duplicates."
    ),
    REFUSALS["MissingAuthenticationToken"]: "It is not signed.",
    REFUSALS["IncompleteSignature"]: "The signature cannot be read.",
    REFUSALS["InvalidClientTokenId"]: "There is no such access key.",
    REFUSALS["SignatureDoesNotMatch"]: "Another secret, another service, or the request was changed on its way.",
    REFUSALS["RequestExpired"]: "It was signed more than 15 minutes ago, or ahead; or a signed URL is past its time.",
    REFUSALS["AccessDenied"]: (
        "The key may not do this, or not with this queue; or the queue is of another account, which does not allow "
        "it, or "
        "does not exist."
    ),
}
"""When each error is answered."""

_SQS: Final = "AWS.SimpleQueueService."
NEVER: Final[Mapping[str, str]] = {
    f"{_SQS}UnsupportedOperation": "All actions are served.",
    "InvalidAddress": "Of the URL of a queue, only the account and the name at its end are looked at.",
    "InvalidSecurity": "Requests over HTTP without TLS are served.",
    "KmsAccessDenied": "There is no KMS; the same goes for KmsDisabled, KmsInvalidKeyUsage, KmsInvalidState, "
    "KmsNotFound, "
    "KmsOptInRequired and KmsThrottled.",
}
"""Errors of AWS that are not answered, and why."""


def error_table() -> str:
    found = [[fault.code, str(fault.status), fault.type.partition("#")[2], when] for fault, when in WHEN.items()]
    absent = [[code, "never", "", why] for code, why in NEVER.items()]
    return table(("code", "status", "name in JSON", "when"), sorted(found) + absent)
