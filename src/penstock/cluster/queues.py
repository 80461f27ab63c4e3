"""Queues, as the store knows them. Pure. How they are made, changed and deleted: cluster/queue_changes.py."""

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
"""Of a new queue, unless more are asked for."""
_MESSAGE_BYTES: Final = 1 << 20
"""Of what may be sent at a time; as a batch it is larger."""
_SEGMENT_BYTES: Final = 32 << 20
"""What is finished is reclaimed segment by segment."""
_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


class QueueExists(PenstockError):
    """A queue of this name is there, with other settings."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class NameTaken(PenstockError):
    """A topic of this name is there, and is no queue's."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class NoSuchQueue(PenstockError):
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TooManyQueues(PenstockError):
    """A topic can have only so many queues."""

    code = ErrorCode.POLICY_VIOLATION


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """Where messages go that were received too often."""

    queue: str
    max_receive_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveAllow:
    """Which queues may name this one as their dead-letter queue."""

    permission: str = ALLOW_ALL
    queues: tuple[str, ...] = ()

    def allows(self, source: str) -> bool:
        if self.permission == BY_QUEUE:
            return source in self.queues
        return self.permission == ALLOW_ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """How a queue delivers. Times are in whole seconds, as AWS counts them."""

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
    """Of its topic, when that is made; 0: as many as there are brokers, within reason."""
    others: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    """Attributes that are kept and shown, and do nothing here."""

    def dump(self) -> dict[str, Any]:
        """As the store holds it: what is as it would be anyway is left out."""
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
        """How many partitions its topic gets. Duplicates of a whole queue can be told by one leader only."""
        if self.is_fifo and self.deduplication_scope == SCOPE_QUEUE:
            return 1
        return self.partitions or max(1, min(brokers, PARTITIONS_MAX))

    def topic_configs(self) -> dict[str, str]:
        """The settings that its own topic gets of it."""
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
    """A queue as the cluster knows it."""

    name: str
    topic_id: bytes
    owner: str = ""
    created_ms: int = 0
    modified_ms: int = 0
    is_attached: bool = False
    """To a topic that was there, and stays."""
    settings: QueueSettings = QueueSettings()
    tags: Mapping[str, str] = field(default_factory=lambda: _EMPTY)

    @property
    def arn(self) -> str:
        """What AWS would call it, as messages say where they came from; account and region stand for nothing here."""
        account = self.owner if _ACCOUNT.fullmatch(self.owner) else "000000000000"
        return f"arn:aws:sqs:us-east-1:{account}:{self.name}"

    def is_same(self, other: "Queue | None") -> bool:
        """Whether both are one queue, however it has been changed; and not another one of its name."""
        return other is not None and (self.topic_id, self.created_ms) == (other.topic_id, other.created_ms)

    def dump(self) -> bytes:
        """Its key, as the store holds it."""
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
    """How a move task is, in AWS's words."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTask:
    """Messages of a queue on their way to where they came from, or to a queue that is named."""

    handle: str
    source: str
    topic_id: bytes
    """Of the source: one that is made again under its name is another queue."""
    destination: str = ""
    """A queue's name; empty: each message goes back to the queue that it came from."""
    per_second: int = 0
    """At most so many; 0: as fast as it goes."""
    started_ms: int = 0
    status: MoveStatus = MoveStatus.RUNNING
    moved: int = 0
    to_move: int = 0
    """Messages that there were when it began."""
    failure: str = ""

    def dump(self) -> dict[str, Any]:
        value = asdict(self)
        value["topic_id"] = uuid_text(self.topic_id)
        return value

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> "MoveTask":
        status = MoveStatus(value["status"])
        return cls(**{**value, "topic_id": keys.topic_id_of(value["topic_id"]), "status": status})
