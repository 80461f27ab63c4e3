"""Identifiers shared by all packages: topic-partition, topic id, topic names."""

import base64
import re
from typing import Final, NamedTuple

from penstock.foundation.errors import InvalidTopic

TOPIC_NAME_CHARS_MAX: Final = 249
GROUPS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset((GROUPS_TOPIC, TRANSACTIONS_TOPIC))
"""Names of the coordinators' internal topics, which only brokers write to."""
SCHEMAS_TOPIC: Final = "_schemas"
"""Name of the schema registry's topic, as in Confluent's registry."""
_LEGAL_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+")


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition by topic id: unlike a topic name, an id is never reused after its topic was deleted."""

    topic_id: bytes
    partition: int


def uuid_text(value: bytes) -> str:
    """Returns sixteen bytes in Kafka's text form of UUIDs: URL-safe base64 without padding.

    >>> uuid_text(bytes(16))
    'AAAAAAAAAAAAAAAAAAAAAA'
    """
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def uuid_bytes(text: str) -> bytes:
    """Returns the sixteen bytes of a UUID in Kafka's text form; the inverse of `uuid_text`."""
    return base64.urlsafe_b64decode(text + "==")


def check_topic_name(name: str) -> None:
    """Raises InvalidTopic for names that Kafka does not allow."""
    if not name or name in (".", ".."):
        raise InvalidTopic(f"topic name {name!r} is not allowed: give it a name of letters, digits, '.', '_', '-'")
    if len(name) > TOPIC_NAME_CHARS_MAX:
        raise InvalidTopic(f"topic name has {len(name)} characters, at most {TOPIC_NAME_CHARS_MAX} are allowed")
    if not _LEGAL_TOPIC.fullmatch(name):
        raise InvalidTopic(f"topic name {name!r} is not allowed: only letters, digits, '.', '_' and '-' may be used")
