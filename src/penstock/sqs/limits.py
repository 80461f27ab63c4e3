"""All limits of the SQS API in one table: requests are checked against them, and docs/sqs.md lists them.

They are AWS's limits, unless a docstring says "Not a limit of SQS".
"""

from typing import Final, NamedTuple


class Span(NamedTuple):
    """The integers from `least` to `most`, inclusive."""

    least: int
    most: int

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and self.least <= value <= self.most


BATCH_ENTRIES_MAX: Final = 10
BATCH_BYTES_MAX: Final = 1_048_576
BATCH_ID_CHARS_MAX: Final = 80
QUEUE_NAME_CHARS_MAX: Final = 80
FULL_NAME_CHARS_MAX: Final = 128
"""Maximum number of characters of a queue's name in the cluster, which may have account and region as prefix."""
MESSAGE_ATTRIBUTES_MAX: Final = 10
ATTRIBUTES_SHOWN_MAX: Final = 1000
"""Maximum number of Kafka record headers that are returned as message attributes. Not a limit of SQS."""
ATTRIBUTE_NAME_CHARS_MAX: Final = 256
ATTRIBUTE_TYPE_CHARS_MAX: Final = 256
NUMBER_DIGITS_MAX: Final = 38
"""Maximum number of digits in the value of a message attribute of type Number."""
TOKEN_CHARS_MAX: Final = 128
"""Maximum number of characters of a MessageGroupId, MessageDeduplicationId or ReceiveRequestAttemptId."""
TRACE_CHARS_MAX: Final = 1024
"""Maximum number of characters of an X-Amzn-Trace-Id header; a longer header is ignored. Not a limit of SQS."""
TAGS_MAX: Final = 50
TAG_KEY_CHARS_MAX: Final = 128
TAG_VALUE_CHARS_MAX: Final = 256
RESULTS_MAX: Final = 1000
"""Maximum number of queues on one page of results; also the default page size."""
MOVE_TASKS_MAX: Final = 10
"""Maximum number of tasks that ListMessageMoveTasks returns."""
REDRIVE_SOURCES_MAX: Final = 10
"""Maximum number of source queues in a RedriveAllowPolicy."""
REDRIVE_POLICY_CHARS_MAX: Final = 16_384
"""Maximum number of characters of a RedrivePolicy or RedriveAllowPolicy. Not a limit of SQS; ten ARNs need 2,000."""
POLICY_BYTES_MAX: Final = 8192
POLICY_STATEMENTS_MAX: Final = 20
POLICY_PRINCIPALS_MAX: Final = 50
"""Maximum number of accounts in one AddPermission request; AWS has this limit for the whole policy."""
ACTIONS_PER_STATEMENT_MAX: Final = 7
LABEL_CHARS_MAX: Final = 80
"""Maximum number of characters of a permission's label."""
OTHER_BYTES_MAX: Final = 262_144
"""Maximum bytes of a queue attribute that is only stored and returned (KmsMasterKeyId). Not a limit of SQS."""

RECEIPT_CHARS_MAX: Final = 1024
HANDLE_CHARS_MAX: Final = 2048
"""Maximum number of characters of a TaskHandle or a NextToken. Not a limit of SQS."""
ARN_CHARS_MAX: Final = 512
"""Maximum number of characters of an ARN. Not a limit of SQS."""
NAMES_MAX: Final = 1000
"""Maximum number of elements of any list or map in a request, such as TagKeys or Attributes. Not a limit of SQS."""

RECEIVED: Final = Span(1, 10)
"""Allowed values of ReceiveMessage's MaxNumberOfMessages."""
WAIT_S: Final = Span(0, 20)
VISIBILITY_S: Final = Span(0, 43_200)
DELAY_S: Final = Span(0, 900)
MESSAGE_BYTES: Final = Span(1024, 1_048_576)
RETENTION_S: Final = Span(60, 1_209_600)
LONG_RETENTION_S: Final = Span(60, 3_155_760_000)
"""Allowed values of the attribute PenstockRetentionPeriod, in seconds: up to a hundred years. Not a limit of SQS."""
PARTITIONS: Final = Span(1, 1000)
"""Allowed values of the queue attribute PenstockPartitions. Not a limit of SQS."""
RECEIVE_COUNT: Final = Span(1, 1000)
"""Allowed values of maxReceiveCount in a RedrivePolicy."""
DATA_KEY_REUSE_S: Final = Span(60, 86_400)
MOVES_PER_S: Final = Span(1, 500)

PARAMETERS_MAX: Final = 1000
"""Maximum number of parameters in the URL, and also in the form, of a Query request. Not a limit of SQS, whose
requests have at most 400."""
PARAMETER_PARTS_MAX: Final = 10
"""Maximum number of dotted parts in a parameter's name, such as `Tag.1.Key`. Not a limit of SQS, whose names have at
most six."""
