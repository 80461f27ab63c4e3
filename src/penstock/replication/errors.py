"""Errors of replicas, with their Kafka error codes."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidTopic, PenstockError
from penstock.foundation.ids import TopicPartition


class FencedLeaderEpoch(PenstockError):
    """The request has an older leader epoch than the partition on this broker."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(PenstockError):
    """The request has a newer leader epoch than the partition on this broker."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class NotEnoughReplicas(PenstockError):
    code = ErrorCode.NOT_ENOUGH_REPLICAS


class InternalTopicWrite(InvalidTopic):
    """A client tried to write to a topic that only brokers write to; Kafka refuses this with the same error."""

    def __init__(self, name: TopicPartition) -> None:
        super().__init__(f"cannot append to topic {name.topic!r}: only brokers write to it")
