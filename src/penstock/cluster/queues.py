"""Queues, queue settings, redrive policies and move tasks as stored. Pure. Changes: cluster/queue_changes.py."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from penstock.cluster import keys
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import uuid_text

ALLOW_ALL: Final = "allowAll"
DENY_ALL: Final = "denyAll"
BY_QUEUE: Final = "byQueue"
SCOPE_QUEUE: Final = "queue"
SCOPE_GROUP: Final = "messageGroup"
PER_QUEUE: Final = "perQueue"
PER_GROUP: Final = "perMessageGroupId"
PARTITIONS_MAX: Final = 8
"""Maximum number of partitions of a new queue's topic, unless the request sets a number."""
_MESSAGE_BYTES: Final = 1 << 20
"""Maximum size, in bytes, of the messages in one SendMessage or SendMessageBatch request."""
_SEGMENT_BYTES: Final = 32 << 20
"""Segment size, in bytes, of a queue's topic. Disk space of finished messages is reclaimed segment by segment."""
_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


class QueueExists(PenstockError):
    """A queue of this name exists with other settings."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class NameTaken(PenstockError):
    """A topic of this name exists that was not created for a queue."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class NoSuchQueue(PenstockError):
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TooManyQueues(PenstockError):
    """The topic has the maximum number of queues."""

    code = ErrorCode.POLICY_VIOLATION


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """The dead-letter queue and the maximum receive count (RedrivePolicy)."""

    queue: str
    max_receive_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveAllow:
    """The queues that may use a queue as their dead-letter queue (RedriveAllowPolicy)."""

    permission: str = ALLOW_ALL
    queues: tuple[str, ...] = ()

    def allows(self, source: str) -> bool:
        if self.permission == BY_QUEUE:
            return source in self.queues
        return self.permission == ALLOW_ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Attributes of a queue. Times are in whole seconds, as in SQS."""

    visibility_timeout_s: int = 30
    delay_s: int = 0
    wait_s: int = 0
    message_bytes_max: int = 1_048_576
    retention_s: int = 345_600
    is_fifo: bool = False
    content_based_deduplication: bool = False
    deduplication_scope: str = SCOPE_QUEUE
    fifo_throughput_limit: str = PER_QUEUE
    redrive: Redrive | None = None
    redrive_allow: RedriveAllow = RedriveAllow()
    partitions: int = 0
    """Number of partitions for the queue's new topic; 0 means one per broker, up to PARTITIONS_MAX."""
    others: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    """Other SQS attributes, which are stored and returned, but have no effect."""

    def dump(self) -> dict[str, Any]:
        """Returns the settings that differ from their defaults, as a value for the store."""
        plain = QueueSettings()
        kept = {name: value for name, value in _fields(self) if value != getattr(plain, name)}
        if self.redrive is not None:
            kept["redrive"] = asdict(self.redrive)
        if "redrive_allow" in kept:
            kept["redrive_allow"] = asdict(self.redrive_allow)
        if "others" in kept:
            kept["others"] = dict(self.others)
        return kept

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> "QueueSettings":
        found = {name: value[name] for name, _ in _fields(QueueSettings()) if name in value}
        if "redrive" in found:
            found["redrive"] = Redrive(**found["redrive"])
        if "redrive_allow" in found:
            allow = found["redrive_allow"]
            found["redrive_allow"] = RedriveAllow(permission=allow["permission"], queues=tuple(allow["queues"]))
        return cls(**found)

    def topic_partitions(self, brokers: int) -> int:
        """Returns the number of partitions for the queue's topic: `partitions`, or if that is 0, one per broker up
        to PARTITIONS_MAX. A FIFO queue with queue-wide deduplication always gets 1."""
        if self.is_fifo and self.deduplication_scope == SCOPE_QUEUE:
            return 1
        return self.partitions or max(1, min(brokers, PARTITIONS_MAX))

    def topic_configs(self) -> dict[str, str]:
        """Returns the topic settings for the queue's own topic."""
        return {
            "retention.ms": str(self.retention_s * 1000),
            "max.message.bytes": str(2 * max(self.message_bytes_max, _MESSAGE_BYTES)),
            "segment.bytes": str(_SEGMENT_BYTES),
        }


_ACCOUNT: Final = re.compile(r"[0-9]{12}")


def _fields(settings: QueueSettings) -> list[tuple[str, Any]]:
    return [(name, getattr(settings, name)) for name in QueueSettings.__dataclass_fields__]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    name: str
    topic_id: bytes
    owner: str = ""
    created_ms: int = 0
    modified_ms: int = 0
    is_attached: bool = False
    """Whether the queue was added to an existing topic, which is not deleted with the queue."""
    settings: QueueSettings = QueueSettings()
    tags: Mapping[str, str] = field(default_factory=lambda: _EMPTY)

    @property
    def arn(self) -> str:
        """The queue's ARN, stored in its dead letters as their source. Its account and region have no meaning."""
        account = self.owner if _ACCOUNT.fullmatch(self.owner) else "000000000000"
        return f"arn:aws:sqs:us-east-1:{account}:{self.name}"

    def is_same(self, other: "Queue | None") -> bool:
        """Whether `other` is the same queue, maybe with other settings; False if it was deleted and created again."""
        return other is not None and (self.topic_id, self.created_ms) == (other.topic_id, other.created_ms)

    def dump(self) -> bytes:
        """Returns the value of the queue's key for the store."""
        return keys.encode(
            {
                "topic": uuid_text(self.topic_id),
                "owner": self.owner,
                "created": self.created_ms,
                "modified": self.modified_ms,
                "attached": self.is_attached,
                "settings": self.settings.dump(),
                "tags": dict(self.tags),
            }
        )

    @classmethod
    def read(cls, name: str, value: Mapping[str, Any]) -> "Queue":
        return cls(
            name=name,
            topic_id=keys.topic_id_of(value["topic"]),
            owner=value["owner"],
            created_ms=value["created"],
            modified_ms=value["modified"],
            is_attached=value["attached"],
            settings=QueueSettings.read(value["settings"]),
            tags=value["tags"],
        )


class MoveStatus(StrEnum):
    """The status of a message move task, in AWS's words."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTask:
    """A message move task: moves a queue's messages back to their source queues, or to a given queue."""

    handle: str
    source: str
    topic_id: bytes
    """The topic id of the source queue: a queue deleted and created again under its name has another topic."""
    destination: str = ""
    """Name of the destination queue; if empty, each message is moved back to its source queue."""
    per_second: int = 0
    """Maximum number of messages moved per second; 0 means unlimited."""
    started_ms: int = 0
    status: MoveStatus = MoveStatus.RUNNING
    moved: int = 0
    to_move: int = 0
    """Number of messages to move, as counted at the start of the task."""
    failure: str = ""

    def dump(self) -> dict[str, Any]:
        value = asdict(self)
        value["topic_id"] = uuid_text(self.topic_id)
        return value

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> "MoveTask":
        status = MoveStatus(value["status"])
        return cls(**{**value, "topic_id": keys.topic_id_of(value["topic_id"]), "status": status})
