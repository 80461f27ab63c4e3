"""Queue attributes of CreateQueue (SQS names), queue names and ARNs. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

FIFO_SUFFIX: Final = ".fifo"
RETENTION_S_MAX: Final = 1_209_600
"""Maximum MessageRetentionPeriod of SQS, in seconds: 14 days."""
MAX_RECEIVES: Final = 5
"""Default maxReceiveCount of a queue with a dead-letter queue."""
MESSAGE_COUNTS: Final = {
    "available": "ApproximateNumberOfMessages",
    "in_flight": "ApproximateNumberOfMessagesNotVisible",
    "delayed": "ApproximateNumberOfMessagesDelayed",
}
"""Names of the SQS attributes with the number of messages, by delivery state (available, in flight, delayed)."""
_ARN: Final = "arn:aws:sqs:::"
"""Prefix of a queue's ARN. Region and account are empty: the server uses those of the caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewQueue:
    """Options of a queue to create; None stands for the default."""

    fifo: bool = False
    delay_s: int | None = None
    visibility_s: int | None = None
    wait_s: int | None = None
    retention_s: int | None = None
    dead_letter: str | None = None
    """Name of the dead-letter queue, which gets messages that were received too often."""
    max_receives: int | None = None
    from_topic: str | None = None
    """An existing topic to attach the queue to; None creates a new topic."""
    partitions: int | None = None
    content_based_deduplication: bool = False

    def attributes(self) -> dict[str, str]:
        """Returns the attributes of a CreateQueue request.

        >>> NewQueue(fifo=True, delay_s=5).attributes()
        {'FifoQueue': 'true', 'DelaySeconds': '5'}
        """
        found = {"FifoQueue": "true"} if self.fifo else {}
        retention = "MessageRetentionPeriod"
        if self.retention_s is not None and self.retention_s > RETENTION_S_MAX:
            retention = "PenstockRetentionPeriod"
        whole = {
            "DelaySeconds": self.delay_s,
            "VisibilityTimeout": self.visibility_s,
            "ReceiveMessageWaitTimeSeconds": self.wait_s,
            retention: self.retention_s,
            "PenstockPartitions": self.partitions,
        }
        found |= {name: str(value) for name, value in whole.items() if value is not None}
        if self.fifo and self.partitions is not None and self.partitions > 1:
            # Only a single leader can deduplicate across the whole queue.
            found |= {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
        if self.content_based_deduplication:
            found["ContentBasedDeduplication"] = "true"
        if self.from_topic is not None:
            found["PenstockTopic"] = self.from_topic
        if self.dead_letter is not None:
            policy = {
                "deadLetterTargetArn": arn_of(self.dead_letter),
                "maxReceiveCount": self.max_receives or MAX_RECEIVES,
            }
            found["RedrivePolicy"] = json.dumps(policy)
        return found


def arn_of(name: str) -> str:
    return _ARN + name


def name_of(url_or_arn: str) -> str:
    """Returns the name of a queue from its URL or ARN.

    >>> name_of("http://127.0.0.1:9324/000000000000/jobs"), name_of("arn:aws:sqs:eu-west-1:1:jobs")
    ('jobs', 'jobs')
    """
    return url_or_arn.rpartition("/")[2].rpartition(":")[2]


def message_counts(attributes: Mapping[str, str]) -> dict[str, int]:
    """Returns the number of messages by delivery state, from the attributes of a queue."""
    return {state: int(attributes[name]) for state, name in MESSAGE_COUNTS.items()}
