"""All limits of the SQS API in one table, as checked, named in errors, and listed in docs/sqs.md.

They are AWS's own, unless a line says otherwise.
"""

from typing import Final, NamedTuple


class Span(NamedTuple):
    """Whole numbers from `least` to `most`, both allowed."""

    least: int
    most: int

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and self.least <= value <= self.most


BATCH_ENTRIES_MAX: Final = 10
BATCH_BYTES_MAX: Final = 1_048_576
BATCH_ID_CHARS_MAX: Final = 80
QUEUE_NAME_CHARS_MAX: Final = 80
FULL_NAME_CHARS_MAX: Final = 128
"""Of a queue's name with its account and region as prefix."""
MESSAGE_ATTRIBUTES_MAX: Final = 10
ATTRIBUTES_SHOWN_MAX: Final = 1000
"""Headers of a Kafka client's record that are returned as message attributes. Ours."""
ATTRIBUTE_NAME_CHARS_MAX: Final = 256
ATTRIBUTE_TYPE_CHARS_MAX: Final = 256
NUMBER_DIGITS_MAX: Final = 38
"""Of an attribute of the type Number."""
TOKEN_CHARS_MAX: Final = 128
"""Of MessageGroupId, MessageDeduplicationId and ReceiveRequestAttemptId."""
TRACE_CHARS_MAX: Final = 1024
"""Of an X-Amzn-Trace-Id that messages get; a longer one is ignored. Ours: X-Ray's have about 100."""
TAGS_MAX: Final = 50
TAG_KEY_CHARS_MAX: Final = 128
TAG_VALUE_CHARS_MAX: Final = 256
RESULTS_MAX: Final = 1000
"""Of one page of queues."""
MOVE_TASKS_MAX: Final = 10
"""Of one answer of ListMessageMoveTasks."""
REDRIVE_SOURCES_MAX: Final = 10
"""Of a RedriveAllowPolicy."""
REDRIVE_POLICY_CHARS_MAX: Final = 16_384
"""Of the text of a RedrivePolicy or RedriveAllowPolicy. Ours: one that names ten queues has 2,000."""
POLICY_BYTES_MAX: Final = 8192
POLICY_STATEMENTS_MAX: Final = 20
POLICY_PRINCIPALS_MAX: Final = 50
"""Of one AddPermission; AWS counts those of the whole policy."""
ACTIONS_PER_STATEMENT_MAX: Final = 7
LABEL_CHARS_MAX: Final = 80
"""Of a permission."""
OTHER_BYTES_MAX: Final = 262_144
"""Of an attribute that is stored but has no effect. Ours."""

RECEIPT_CHARS_MAX: Final = 1024
HANDLE_CHARS_MAX: Final = 2048
"""Of a TaskHandle or a NextToken. Ours."""
ARN_CHARS_MAX: Final = 512
"""Ours."""
NAMES_MAX: Final = 1000
"""Of a list or a map of a request, unless something lower is allowed: AttributeNames, MessageAttributeNames, TagKeys,
Attributes. Ours."""

RECEIVED: Final = Span(1, 10)
"""Messages of one ReceiveMessage."""
WAIT_S: Final = Span(0, 20)
VISIBILITY_S: Final = Span(0, 43_200)
DELAY_S: Final = Span(0, 900)
MESSAGE_BYTES: Final = Span(1024, 1_048_576)
RETENTION_S: Final = Span(60, 1_209_600)
LONG_RETENTION_S: Final = Span(60, 3_155_760_000)
"""Of PenstockRetentionPeriod: a hundred years. Ours."""
PARTITIONS: Final = Span(1, 1000)
"""Of PenstockPartitions. Ours."""
RECEIVE_COUNT: Final = Span(1, 1000)
"""The maxReceiveCount of a RedrivePolicy."""
DATA_KEY_REUSE_S: Final = Span(60, 86_400)
MOVES_PER_S: Final = Span(1, 500)

PARAMETERS_MAX: Final = 1000
"""Of the URL, and of the form, of a request of the Query protocol. Ours: ten entries of ten attributes have 400."""
PARAMETER_PARTS_MAX: Final = 10
"""Of a parameter's name: `SendMessageBatchRequestEntry.1.MessageAttribute.2.Value.StringValue` has six. Ours."""
