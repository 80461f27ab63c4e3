"""Key layout of the store: names and encoding of all keys.

Keys of topics, partitions and views contain ids, since names can be reused. A leased key is deleted at the end of its
owner's session. For a key that can be deleted and created again (`brokers/1`, `controller`), writes check a related
key that is never created again: `incarnations/<epoch>`, `controller-epoch`.
"""

import json
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, unquote

import orjson

from penstock.foundation.acls import Pattern, PatternType, ResourceType
from penstock.foundation.ids import uuid_bytes, uuid_text
from penstock.foundation.quota_entities import Entity

CLUSTER: Final = "cluster"
MOVING: Final = "moving"
"""Key that exists while a cluster is migrated into this store: no broker joins while it exists."""
BROKERS: Final = "brokers"
INCARNATIONS: Final = "incarnations"
BROKER_EPOCHS: Final = "broker-epochs"
"""Key of the counter that assigns broker epochs."""
BROKER_CONFIGS: Final = "broker-configs"
GROUP_CONFIGS: Final = "group-configs"
CLIENT_METRICS: Final = "client-metrics"
FOLDERS: Final = "folders"
DRAINED: Final = "drained"
CONTROLLER: Final = "controller"
"""Key of the current controller, written together with its epoch. Leased: deleted when the broker's session ends."""
CONTROLLER_EPOCH: Final = "controller-epoch"
"""Key of the counter of controller epochs. All writes of a controller require that its version is unchanged."""
TOPICS: Final = "topics"
TOPIC_NAMES: Final = "topic-names"
PARTITIONS: Final = "partitions"
UNFINISHED: Final = "unfinished"
PRODUCER_IDS: Final = "producer-ids"
QUEUES: Final = "queues"
QUEUE_MOVES: Final = "queue-moves"
QUEUE_COOLDOWNS: Final = "queue-cooldowns"
"""Key with the queues deleted or purged within the last minute: see queue_cooldowns.py."""
VIEWS: Final = "views"
USERS: Final = "users"
USER_CHANGES: Final = "user-changes"
"""Key of the counter that every change of users increments: the key of a user can be deleted and created again."""
ACLS: Final = "acls"
ACL_CHANGES: Final = "acl-changes"
"""Key of the counter that every change of ACLs increments, for the same reason."""
CLIENT_QUOTAS: Final = "client-quotas"
QUOTA_CHANGES: Final = "quota-changes"
"""Key of the counter that every change of quotas increments, for the same reason."""
DELEGATION_TOKENS: Final = "delegation-tokens"
ACCESS_KEYS: Final = "access-keys"
LOGIN_SECRET: Final = "login-secret"
"""Key of the secret from which all brokers derive the same made-up salts for users that do not exist."""


def topic(topic_id: bytes) -> str:
    return f"{TOPICS}/{uuid_text(topic_id)}"


def topic_name(name: str) -> str:
    """Returns the key that reserves a name: its value is the key of the topic or view that has the name."""
    return f"{TOPIC_NAMES}/{name}"


def partition(topic_id: bytes, number: int) -> str:
    return f"{PARTITIONS}/{uuid_text(topic_id)}/{number}"


def unfinished(topic_id: bytes) -> str:
    """Returns the key that protects a topic's new partitions from removal until a request has created them all.
    Leased: deleted when the broker's session ends."""
    return f"{UNFINISHED}/{uuid_text(topic_id)}"


def queue(name: str) -> str:
    """Returns the key of a queue. Its value has the queue's owner, settings and tags, and the id of its topic."""
    return f"{QUEUES}/{name}"


def queue_moves(name: str) -> str:
    """Returns the key of the message move tasks of a queue, running and finished."""
    return f"{QUEUE_MOVES}/{name}"


def view(view_id: bytes) -> str:
    """Returns the key of a view (filtered topic). Its value has the view's name, its filter and its topic's id."""
    return f"{VIEWS}/{uuid_text(view_id)}"


def broker(node_id: int) -> str:
    """Returns the key of a broker's registration. Leased: deleted when the broker's session ends."""
    return f"{BROKERS}/{node_id}"


def incarnation(epoch: int) -> str:
    """Returns the key that exists as long as the broker registration with this epoch, and is never created again."""
    return f"{INCARNATIONS}/{epoch}"


def folder(node_id: int) -> str:
    """Returns the key whose value is the id of the data folder with which a broker last registered."""
    return f"{FOLDERS}/{node_id}"


def drained(node_id: int) -> str:
    """Returns the store key that marks a broker as drained: it gets no new replicas while the key exists."""
    return f"{DRAINED}/{node_id}"


def broker_config(node: str) -> str:
    return f"{BROKER_CONFIGS}/{node}"


def group_config(group_id: str) -> str:
    """Returns the key of the dynamic settings of a consumer or share group, with the group id percent-encoded."""
    return f"{GROUP_CONFIGS}/{quote(group_id, safe='')}"


def client_metrics(name: str) -> str:
    """Returns the key of a client metrics subscription, with its name percent-encoded."""
    return f"{CLIENT_METRICS}/{quote(name, safe='')}"


def user(name: str) -> str:
    """Returns the key of a user, with the name percent-encoded. Its value has the user's credentials."""
    return f"{USERS}/{quote(name, safe='')}"


def access_keys(user_name: str) -> str:
    """Returns the key of all access keys of a user, with the user's name percent-encoded."""
    return f"{ACCESS_KEYS}/{quote(user_name, safe='')}"


def acls(pattern: Pattern) -> str:
    """Returns the key of the ACLs of a resource pattern, with its name percent-encoded."""
    return f"{ACLS}/{int(pattern.resource_type)}/{int(pattern.pattern_type)}/{quote(pattern.name, safe='')}"


def pattern_of(text: str) -> Pattern:
    """Returns the pattern of a key made by `acls`, without the first part of the key."""
    resource_type, pattern_type, name = text.split("/")
    return Pattern(ResourceType(int(resource_type)), PatternType(int(pattern_type)), unquote(name))


def client_quota(entity: Entity) -> str:
    """Returns the key of the quotas of an entity, percent-encoded. Its value has the quotas by name."""
    return f"{CLIENT_QUOTAS}/{quote(json.dumps(entity), safe='')}"


def entity_of(text: str) -> Entity:
    """Returns the entity of a key made by `client_quota`, without the first part of the key."""
    return tuple((kind, name) for kind, name in json.loads(unquote(text)))


def delegation_token(token_id: str) -> str:
    """Returns the key of a delegation token. Its id is random: a key that was deleted is never created again."""
    return f"{DELEGATION_TOKENS}/{token_id}"


def plain_name_of(text: str) -> str:
    """Decodes the last part of a key made by `group_config`, `client_metrics`, `user` or `access_keys`."""
    return unquote(text)


@lru_cache(maxsize=1000)
def topic_id_of(text: str) -> bytes:
    """Returns the topic id for its text form in a key. Cached: up to ten thousand partition keys have the same id."""
    return uuid_bytes(text)


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def decode(value: bytes) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return json.loads(value)  # accepts lone surrogates, which orjson refuses
