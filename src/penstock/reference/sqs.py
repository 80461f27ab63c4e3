"""Tables of SQS actions and queue attributes."""

from collections.abc import Mapping
from typing import Final

from penstock.cluster.queues import ALLOW_ALL, BY_QUEUE, DENY_ALL, PARTITIONS_MAX, QueueSettings
from penstock.reference.tables import table
from penstock.sqs import attributes, limits
from penstock.sqs.actions.create_queue import TOPIC
from penstock.sqs.attributes import CHOICES, INTEGERS, KNOWN, SHOWN_ONLY
from penstock.sqs.permissions import POLICY, SHARED_ACTIONS
from penstock.sqs.registry import ACTIONS, load_actions

_UNITS: Final[Mapping[str, str]] = {"MaximumMessageSize": " bytes", attributes.PARTITIONS: ""}
_FLAGS: Final = "true, false"
_NEW_ONLY: Final = (attributes.FIFO_QUEUE, attributes.PARTITIONS, TOPIC)

_ABOUT: Final[Mapping[str, str]] = {
    "VisibilityTimeout": "How long a message is hidden from others once it is received.",
    "DelaySeconds": "Delay of new messages, unless the message sets its own (standard queues).",
    "ReceiveMessageWaitTimeSeconds": "How long ReceiveMessage waits for messages, unless the request sets it.",
    "MaximumMessageSize": "Largest message: body, and names, types and values of its attributes.",
    "MessageRetentionPeriod": "How long messages are kept: the retention of the queue's topic.",
    "RedrivePolicy": "The dead-letter queue, and after how many receives messages move there.",
    "RedriveAllowPolicy": "Which queues may have this one as their dead-letter queue.",
    attributes.FIFO_QUEUE: "Creates a FIFO queue; its name must end in `.fifo`.",
    "ContentBasedDeduplication": "FIFO queues: the body's SHA-256 is the default MessageDeduplicationId.",
    "DeduplicationScope": "FIFO queues: whether duplicates are detected per queue or per message group.",
    "FifoThroughputLimit": "FIFO queues: stored and returned.",
    POLICY: "What [other accounts](#accounts) may do.",
    attributes.KMS_KEY: "Stored and returned.",
    attributes.KMS_REUSE: "Stored; returned while there is a KmsMasterKeyId.",
    attributes.MANAGED_SSE: "Stored and returned.",
    "QueueArn": "Its region is the one that the request is signed for, or `sqs.region`.",
    "CreatedTimestamp": "When the queue was created, in seconds.",
    "LastModifiedTimestamp": "When its attributes were last changed, in seconds.",
    "ApproximateNumberOfMessages": "Messages that can be received.",
    "ApproximateNumberOfMessagesNotVisible": "Messages in flight.",
    "ApproximateNumberOfMessagesDelayed": "Messages whose delay is not over.",
    attributes.PARTITIONS: "Penstock only: partitions of the queue's topic.",
    attributes.RETENTION: "Penstock only: a MessageRetentionPeriod beyond 14 days, up to a hundred years.",
    TOPIC: "Penstock only: an existing topic to attach the queue to, instead of creating one.",
}
_VALUES: Final[Mapping[str, tuple[str, str]]] = {
    "RedrivePolicy": (
        f"JSON: `deadLetterTargetArn`, `maxReceiveCount` {limits.RECEIVE_COUNT.least} to "
        f"{limits.RECEIVE_COUNT.most:,}",
        "none",
    ),
    "RedriveAllowPolicy": (
        f"JSON: `redrivePermission` {ALLOW_ALL}, {DENY_ALL}, {BY_QUEUE}; `sourceQueueArns` up to "
        f"{limits.REDRIVE_SOURCES_MAX}",
        ALLOW_ALL,
    ),
    attributes.FIFO_QUEUE: ("true", "none"),
    "ContentBasedDeduplication": (_FLAGS, "false"),
    POLICY: ("JSON with at least one statement", "none"),
    attributes.KMS_KEY: ("text", "none"),
    attributes.KMS_REUSE: (
        f"{limits.DATA_KEY_REUSE_S.least:,} to {limits.DATA_KEY_REUSE_S.most:,} s",
        attributes.KMS_REUSE_DEFAULT,
    ),
    attributes.MANAGED_SSE: (_FLAGS, "true"),
    TOPIC: ("the name of a topic", "none"),
}
"""Allowed values and default of each attribute that is neither a number nor a choice."""


def _values(name: str) -> tuple[str, str]:
    if name in SHOWN_ONLY:
        return "", ""
    if name == attributes.PARTITIONS:
        span = limits.PARTITIONS
        return f"{span.least:,} to {span.most:,}", f"the number of brokers, up to {PARTITIONS_MAX}"
    if name == attributes.RETENTION:
        span = limits.LONG_RETENTION_S
        return f"{span.least:,} to {span.most:,} s", "none"
    if name in INTEGERS:
        field, span = INTEGERS[name]
        return f"{span.least:,} to {span.most:,}{_UNITS.get(name, ' s')}", f"{getattr(QueueSettings(), field):,}"
    if name in CHOICES:
        field, choices = CHOICES[name]
        return ", ".join(choices), str(getattr(QueueSettings(), field))
    return _VALUES[name]


def _settable(name: str) -> str:
    if name in SHOWN_ONLY:
        return "read-only"
    return "at creation" if name in _NEW_ONLY else "at any time"


def queue_attributes() -> str:
    rows = ([name, *_values(name), _settable(name), _ABOUT[name]] for name in sorted({*KNOWN, TOPIC}))
    return table(("attribute", "values", "default", "set", "what it is"), rows)


def actions() -> str:
    load_actions()
    rows = (
        [name, action.permission, "yes" if action.permission in SHARED_ACTIONS else "no"]
        for name, action in sorted(ACTIONS.items())
    )
    return table(("action", "permission that a key needs", "can be granted to other accounts"), rows)
