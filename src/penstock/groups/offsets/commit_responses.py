"""Responses to OffsetCommit and TxnOffsetCommit, which have an error code for every partition."""

from collections.abc import Iterable
from itertools import repeat
from typing import Any

from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

Codes = Iterable[Iterable[int]]
"""The error code of each partition of each topic, in the order of the request."""


def same_code(code: int) -> Codes:
    """Returns Codes in which every partition of every topic has the error code `code`."""
    return repeat(repeat(code))


def commit_response(request: OffsetCommitRequest, codes: Codes) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=_topics(request, codes, OffsetCommitResponseTopic, OffsetCommitResponsePartition)
    )


def txn_commit_response(request: TxnOffsetCommitRequest, codes: Codes) -> TxnOffsetCommitResponse:
    topics = _topics(request, codes, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition)
    return TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)


def _topics(request: Any, codes: Codes, topic_class: Any, partition_class: Any) -> list[Any]:
    topics = []
    for topic, topic_codes in zip(request.topics, codes, strict=False):
        partitions = [
            partition_class(partition_index=partition.partition_index, error_code=code)
            for partition, code in zip(topic.partitions, topic_codes, strict=False)
        ]
        topics.append(topic_class(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return topics
