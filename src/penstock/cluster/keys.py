"""Key layout of the store: names and encoding of all keys.

Keys contain topic ids, never names that could be reused (except four). A key that ends with its owner's session is
leased. Where a key is created again (`brokers/1`, `controller`), conditions refer to a key beside it that never is:
`incarnations/<epoch>`, `controller-epoch`.
"""

import json
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, unquote

import orjson

from penstock.foundation.ids import uuid_bytes, uuid_text

CLUSTER: Final = "cluster"
MOVING: Final = "moving"
"""Exists while a cluster is migrated into this store: no broker joins meanwhile."""
BROKERS: Final = "brokers"
INCARNATIONS: Final = "incarnations"
BROKER_EPOCHS: Final = "broker-epochs"
"""Counter of broker epochs."""
BROKER_CONFIGS: Final = "broker-configs"
GROUP_CONFIGS: Final = "group-configs"
CLIENT_METRICS: Final = "client-metrics"
FOLDERS: Final = "folders"
DRAINED: Final = "drained"
CONTROLLER: Final = "controller"
"""The controller (leased). Written together with the next controller epoch."""
CONTROLLER_EPOCH: Final = "controller-epoch"
"""Counter of controllers: its version is a condition of all writes of a controller."""
TOPICS: Final = "topics"
TOPIC_NAMES: Final = "topic-names"
PARTITIONS: Final = "partitions"
UNFINISHED: Final = "unfinished"
PRODUCER_IDS: Final = "producer-ids"
QUEUES: Final = "queues"
QUEUE_MOVES: Final = "queue-moves"
QUEUE_COOLDOWNS: Final = "queue-cooldowns"
"""Queues deleted or purged within the last minute: see queue_cooldowns.py."""
VIEWS: Final = "views"


def topic(topic_id: bytes) -> str:
    return f"{TOPICS}/{uuid_text(topic_id)}"


def topic_name(name: str) -> str:
    """Holds the id of the topic or view with this name: makes names unique."""
    return f"{TOPIC_NAMES}/{name}"


def partition(topic_id: bytes, number: int) -> str:
    return f"{PARTITIONS}/{uuid_text(topic_id)}/{number}"


def unfinished(topic_id: bytes) -> str:
    """Leased by a request that creates partitions in several transactions, to keep them from being removed."""
    return f"{UNFINISHED}/{uuid_text(topic_id)}"


def queue(name: str) -> str:
    """A queue: owner, settings, and the id of its topic."""
    return f"{QUEUES}/{name}"


def queue_moves(name: str) -> str:
    """The move tasks of a queue, running and finished."""
    return f"{QUEUE_MOVES}/{name}"


def view(view_id: bytes) -> str:
    """A view: its name, its filter, and the id of its source topic."""
    return f"{VIEWS}/{uuid_text(view_id)}"


def broker(node_id: int) -> str:
    """The registration of a broker (leased)."""
    return f"{BROKERS}/{node_id}"


def incarnation(epoch: int) -> str:
    """Exists as long as the registration with this broker epoch (leased), and is never created again."""
    return f"{INCARNATIONS}/{epoch}"


def folder(node_id: int) -> str:
    """The data folder that a broker last registered with: another folder has none of its data."""
    return f"{FOLDERS}/{node_id}"


def drained(node_id: int) -> str:
    """Exists if a broker must get no new replicas."""
    return f"{DRAINED}/{node_id}"


def broker_config(node: str) -> str:
    return f"{BROKER_CONFIGS}/{node}"


def group_config(group_id: str) -> str:
    """The dynamic settings of a group. Any text can be a group id."""
    return f"{GROUP_CONFIGS}/{quote(group_id, safe='')}"


def client_metrics(name: str) -> str:
    """A client metrics subscription. Any text can be its name."""
    return f"{CLIENT_METRICS}/{quote(name, safe='')}"


def plain_name_of(text: str) -> str:
    """The inverse of the last part of `group_config` and `client_metrics`."""
    return unquote(text)


@lru_cache(maxsize=1000)
def topic_id_of(text: str) -> bytes:
    """Returns the topic id in a key; cached, since ten thousand partitions name the same topic."""
    return uuid_bytes(text)


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def decode(value: bytes) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return json.loads(value)  # accepts lone surrogates, which orjson refuses
