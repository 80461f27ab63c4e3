"""What stands where in the store. Keys hold topic ids, never names that could be used again (but four).

A key that goes with its holder's session is leased. Where one is made again (`brokers/1`, `controller`), conditions
are put on a key beside it that never is: `incarnations/<epoch>`, `controller-epoch`.
"""

import json
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, unquote

import orjson

from penstock.foundation.ids import uuid_bytes, uuid_text

CLUSTER: Final = "cluster"
MOVING: Final = "moving"
"""There while a cluster is moved into this store and not all of it is there: no broker joins meanwhile."""
BROKERS: Final = "brokers"
INCARNATIONS: Final = "incarnations"
BROKER_EPOCHS: Final = "broker-epochs"
"""Counts the registrations that there ever were."""
BROKER_CONFIGS: Final = "broker-configs"
GROUP_CONFIGS: Final = "group-configs"
CLIENT_METRICS: Final = "client-metrics"
FOLDERS: Final = "folders"
DRAINED: Final = "drained"
CONTROLLER: Final = "controller"
"""Who is the controller (leased). Taken together with the next controller epoch."""
CONTROLLER_EPOCH: Final = "controller-epoch"
"""Counts the controllers that there ever were: its version is a condition of everything that a controller writes."""
TOPICS: Final = "topics"
TOPIC_NAMES: Final = "topic-names"
PARTITIONS: Final = "partitions"
UNFINISHED: Final = "unfinished"
PRODUCER_IDS: Final = "producer-ids"
QUEUES: Final = "queues"
QUEUE_MOVES: Final = "queue-moves"
QUEUE_COOLDOWNS: Final = "queue-cooldowns"
"""Queues that were deleted or purged within the last minute: see queue_cooldowns.py."""
VIEWS: Final = "views"


def topic(topic_id: bytes) -> str:
    return f"{TOPICS}/{uuid_text(topic_id)}"


def topic_name(name: str) -> str:
    """Holds a topic's id, or a view's, while it exists: what makes names unique."""
    return f"{TOPIC_NAMES}/{name}"


def partition(topic_id: bytes, number: int) -> str:
    return f"{PARTITIONS}/{uuid_text(topic_id)}/{number}"


def unfinished(topic_id: bytes) -> str:
    """Leased by whoever makes partitions of a topic in several transactions: nobody else takes them for leftovers."""
    return f"{UNFINISHED}/{uuid_text(topic_id)}"


def queue(name: str) -> str:
    """A queue: whose it is, its settings, and the id of the topic that its messages are in."""
    return f"{QUEUES}/{name}"


def queue_moves(name: str) -> str:
    """The tasks that move, or have moved, a queue's messages elsewhere."""
    return f"{QUEUE_MOVES}/{name}"


def view(view_id: bytes) -> str:
    """A view: its name, its filter, and the id of the topic that it is of."""
    return f"{VIEWS}/{uuid_text(view_id)}"


def broker(node_id: int) -> str:
    """A broker's registration (leased)."""
    return f"{BROKERS}/{node_id}"


def incarnation(epoch: int) -> str:
    """There as long as the registration that has this epoch (leased), and never again."""
    return f"{INCARNATIONS}/{epoch}"


def folder(node_id: int) -> str:
    """The data folder that a broker last registered with: another one has none of its data."""
    return f"{FOLDERS}/{node_id}"


def drained(node_id: int) -> str:
    """There if a broker is to get no replicas any more."""
    return f"{DRAINED}/{node_id}"


def broker_config(node: str) -> str:
    return f"{BROKER_CONFIGS}/{node}"


def group_config(group_id: str) -> str:
    """The settings that a group has of its own. Any text may be a group's id."""
    return f"{GROUP_CONFIGS}/{quote(group_id, safe='')}"


def client_metrics(name: str) -> str:
    """A subscription to metrics of clients. Any text may be its name."""
    return f"{CLIENT_METRICS}/{quote(name, safe='')}"


def plain_name_of(text: str) -> str:
    """The inverse of the last part of `group_config` and `client_metrics`."""
    return unquote(text)


@lru_cache(maxsize=1000)
def topic_id_of(text: str) -> bytes:
    """The topic's id that a key names. The keys of ten thousand partitions name the same one."""
    return uuid_bytes(text)


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def decode(value: bytes) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return json.loads(value)  # which takes half a surrogate pair for a character, too
