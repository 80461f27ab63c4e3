"""What replicas refuse."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidTopic, PenstockError
from penstock.foundation.ids import TopicPartition


class FencedLeaderEpoch(PenstockError):
    """The client knows an older leader than this one."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(PenstockError):
    """The client knows a newer leader than this one."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class NotEnoughReplicas(PenstockError):
    code = ErrorCode.NOT_ENOUGH_REPLICAS


class InternalTopicWrite(InvalidTopic):
    """A client tried to write to a topic that only brokers write to, as Kafka refuses it."""

    def __init__(self, name: TopicPartition) -> None:
        super().__init__(f"cannot append to internal topic {name.topic!r}: only brokers write to it")
