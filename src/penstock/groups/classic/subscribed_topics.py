"""Reads the subscribed topics from the metadata of classic group members."""

from collections.abc import Iterable
from typing import Final

from penstock.foundation.errors import MalformedRequest
from penstock.wire.codec import decode
from penstock.wire.schema import Array, String, record
from penstock.wire.state import kind_of

CONSUMER: Final = "consumer"
"""The protocol type of groups of consumers, whose metadata is in Kafka's consumer protocol."""
_AFTER_VERSION: Final = 2


@record(versions="0", flexible="none")
class Subscription:
    """Schema of the first fields of a consumer's subscription (the member metadata in JoinGroup). All versions of
    Kafka's consumer protocol begin with these fields."""

    topics: Array[String]


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Returns the union of the topics in the consumers' metadata; None if any of the metadata cannot be decoded."""
    found: set[str] = set()
    try:
        for written in metadata:
            kind_of(written)  # raises if there is no version; version 0 is a prefix of all versions
            found.update(decode(Subscription, 0, written, _AFTER_VERSION).topics)
    except MalformedRequest:
        return None
    return frozenset(found)
