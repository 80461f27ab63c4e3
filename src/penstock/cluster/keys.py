"""What stands where in the store. Keys hold topic ids, never names that could be used again (but one)."""

import json
from typing import Any, Final

from penstock.foundation.ids import uuid_bytes, uuid_text

CLUSTER: Final = "cluster"
BROKERS: Final = "brokers"
BROKER_CONFIGS: Final = "broker-configs"
TOPICS: Final = "topics"
TOPIC_NAMES: Final = "topic-names"
PARTITIONS: Final = "partitions"
PRODUCER_IDS: Final = "producer-ids"


def topic(topic_id: bytes) -> str:
    return f"{TOPICS}/{uuid_text(topic_id)}"


def topic_name(name: str) -> str:
    """Holds a topic's id while the topic exists: what makes names unique."""
    return f"{TOPIC_NAMES}/{name}"


def partition(topic_id: bytes, number: int) -> str:
    return f"{PARTITIONS}/{uuid_text(topic_id)}/{number}"


def broker(node_id: int) -> str:
    return f"{BROKERS}/{node_id}"


def broker_config(node: str) -> str:
    return f"{BROKER_CONFIGS}/{node}"


def topic_id_of(text: str) -> bytes:
    return uuid_bytes(text)


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def decode(value: bytes) -> Any:
    return json.loads(value)
